// Grades a samples_of_rank(): the reference, a learner's, or one that is known to be wrong.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "step2_sharded_data/data_shard.hpp"

namespace ladder::step2 {

using SamplesOfRank = std::function<std::vector<std::int64_t>(
    std::span<const std::int64_t> order, std::int64_t position, int rank, int num_ranks, Tail)>;

// Says what is wrong, a line each, with the samples found and the samples wanted; nothing if all is
// right. Not collective: it asks for the samples of all ranks itself.
std::vector<std::string> grade(const SamplesOfRank& attempt);

}  // namespace ladder::step2
