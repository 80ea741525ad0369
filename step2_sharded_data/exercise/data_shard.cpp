// Exercise of step 2: which rank reads which sample.
//
// Write samples_of_rank() as step2_sharded_data/data_shard.hpp describes it, then run:
//   ./ladder exercise step2_sharded_data
// No rank has to ask another, so it is pure arithmetic. data_shard() is written for you.
#include "step2_sharded_data/data_shard.hpp"

#include "common/core/check.hpp"

namespace ladder {

std::vector<std::int64_t> samples_of_rank(std::span<const std::int64_t> order,
                                          std::int64_t position, int rank, int num_ranks,
                                          Tail tail) {
  // `order` lists the samples of the whole epoch (order.size() of them); order[position] is the
  // first one not yet read. All ranks must get equally many: how many is that if the tail is
  // dropped, and if it is padded? Where in `order` is this rank's k-th sample? And what pads the
  // tail if that place is beyond the end, perhaps by more than a whole epoch?
  static_cast<void>(order);
  static_cast<void>(position);
  static_cast<void>(rank);
  static_cast<void>(num_ranks);
  static_cast<void>(tail);
  not_implemented("step2_sharded_data: samples_of_rank()");
}

DataShard data_shard(int rank, int num_ranks, Tail tail) {
  const auto select = [=](std::span<const std::int64_t> order, std::int64_t position) {
    return samples_of_rank(order, position, rank, num_ranks, tail);
  };
  return {num_ranks, select};
}

}  // namespace ladder
