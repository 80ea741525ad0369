#include "step2_sharded_data/data_shard.hpp"

#include "common/core/check.hpp"

namespace ladder {

std::vector<std::int64_t> samples_of_rank(std::span<const std::int64_t> order,
                                          std::int64_t position, int rank, int num_ranks,
                                          Tail tail) {
  check(0 <= rank && rank < num_ranks, "there is no rank ", rank, " in a group of ", num_ranks);
  const auto num_samples = static_cast<std::int64_t>(order.size());
  const std::int64_t num_left = num_samples - position;
  const std::int64_t per_rank =
      (tail == Tail::kDrop ? num_left : num_left + num_ranks - 1) / num_ranks;
  std::vector<std::int64_t> samples;
  samples.reserve(static_cast<std::size_t>(per_rank));
  for (std::int64_t k = 0; k < per_rank; ++k) {
    const std::int64_t i = k * num_ranks + rank;  // among those that are left
    // Beyond the end is the padding: the order again, from its start.
    const std::int64_t place = i < num_left ? position + i : (i - num_left) % num_samples;
    samples.push_back(order[static_cast<std::size_t>(place)]);
  }
  return samples;
}

DataShard data_shard(int rank, int num_ranks, Tail tail) {
  const auto select = [=](std::span<const std::int64_t> order, std::int64_t position) {
    return samples_of_rank(order, position, rank, num_ranks, tail);
  };
  return {num_ranks, select};
}

}  // namespace ladder
