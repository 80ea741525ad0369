// Amounts as messages have them.
#pragma once

#include <cstdint>
#include <string>

namespace ladder {

std::string format_bytes(
    std::int64_t bytes);  // "12.3 MiB", "512 B"; reports have plain byte counts
std::string count_of(std::int64_t count, const std::string& noun);  // "1 rank", "2 batches"

}  // namespace ladder
