// Which rank reads which sample.
//
// Every rank knows the epoch's order, because it depends only on (seed, epoch): no rank has to ask
// another. Rank r of N takes every N-th sample of it, starting at the r-th:
//
//   order   5  2  7  0  6  1  4  3        N = 2, two rows per step and rank
//   rank 0  5     7  |  6     4  |
//   rank 1     2     0  |  1     3
//
// So the rows of each step are contiguous in the order, whatever N is: step s of N ranks sees the
// same samples as step s of one process with N times as many rows.
//
// The shards are disjoint and complete, except for the tail: samples that do not divide evenly over
// the ranks. All shards must be equally long, because a rank with an extra step would wait for the
// others forever. So the tail is either dropped or padded by repeating the order from its start, as
// often as needed (the semantics of PyTorch's DistributedSampler).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/data/batch_stream.hpp"

namespace ladder {

// One rank's share of the samples that are left in an epoch. `order` is the order of the whole
// epoch, whose first `position` samples (at most all) have been used; padding repeats it from
// order[0], wherever the position is. Pure; the result has the same length on all ranks: 0 if none
// are left, or fewer than ranks and the tail is dropped. Throws CheckError for a rank outside
// [0, num_ranks), so for any rank if num_ranks is 0.
std::vector<std::int64_t> samples_of_rank(std::span<const std::int64_t> order,
                                          std::int64_t position, int rank, int num_ranks,
                                          Tail tail);

// The rule in the form that BatchStream takes.
DataShard data_shard(int rank, int num_ranks, Tail tail);

// As the options deal a step's samples: by that rule, or in whole microbatches.
inline DataShard data_shard(int rank, int num_ranks, const DataOptions& options) {
  return options.deal == Deal::kSamples ? data_shard(rank, num_ranks, options.tail)
                                        : dealt_microbatches(rank, num_ranks);
}

}  // namespace ladder
