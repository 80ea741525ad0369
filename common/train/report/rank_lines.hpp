// What --dry-run shows of the ranks. Those that hold the same share a line, and so do those that
// send the same.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace ladder {

// What one rank does, in the singular, and the rest of the line: {"holds", "812 bytes"}.
using RankLines = std::vector<std::pair<std::string, std::string>>;

// "rank 0 holds        812 bytes", "ranks 1 to 998 hold  700 bytes", "rank 0 sends …". Every rank has as
// many lines.
std::string describe_ranks(int world_size, const std::function<RankLines(int rank)>& lines_of);

}  // namespace ladder
