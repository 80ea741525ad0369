#include "common/train/report/rank_lines.hpp"

#include <algorithm>

#include "common/core/check.hpp"

namespace ladder {
namespace {

// "rank 3", "ranks 0 to 998", "ranks 0, 2, 4 … 998 (500 in all)".
std::string name_of(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return concat("rank ", ranks[0]);
  const bool is_range = ranks.back() - ranks[0] == static_cast<int>(ranks.size()) - 1;
  if (is_range && ranks.size() > 2) return concat("ranks ", ranks[0], " to ", ranks.back());
  const bool is_long = ranks.size() > 4;
  std::string name = concat("ranks ", ranks[0]);
  for (std::size_t i = 1; i < (is_long ? 3 : ranks.size()); ++i) name += concat(", ", ranks[i]);
  return is_long ? concat(name, " … ", ranks.back(), " (", ranks.size(), " in all)") : name;
}

}  // namespace

std::string describe_ranks(int world_size, const std::function<RankLines(int)>& lines_of) {
  constexpr std::size_t kColumn = 20;
  using Group = std::pair<RankLines::value_type, std::vector<int>>;
  std::vector<std::vector<Group>> groups;  // of each line in turn, by their first ranks
  for (int rank = 0; rank < world_size; ++rank) {
    const RankLines lines = lines_of(rank);
    groups.resize(lines.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const auto same = std::find_if(groups[i].begin(), groups[i].end(),
                                     [&](const Group& group) { return group.first == lines[i]; });
      if (same == groups[i].end()) {
        groups[i].push_back({lines[i], {rank}});
      } else {
        same->second.push_back(rank);
      }
    }
  }
  std::string text;
  for (const std::vector<Group>& groups_of_line : groups) {
    for (const auto& [line, ranks] : groups_of_line) {
      const auto& [verb, rest] = line;
      const bool drops_s = ranks.size() > 1 && verb.ends_with('s');
      std::string start = concat(name_of(ranks), " ", verb.substr(0, verb.size() - drops_s));
      start.resize(std::max(start.size() + 2, kColumn), ' ');
      text += concat(start, rest, "\n");
    }
  }
  return text;
}

}  // namespace ladder
