// Who reads which sample.
//
// Every rank knows the epoch's order, because it depends on (seed, epoch) alone: no rank has to ask
// another. Rank r of N takes every N-th sample of it, beginning with the r-th:
//
//   order   5  2  7  0  6  1  4  3        N = 2, two rows per step and rank
//   rank 0  5     7  |  6     4  |
//   rank 1     2     0  |  1     3
//
// So each step's rows lie next to each other in the order, whatever N is: step s of N ranks sees the
// same samples as step s of one process with N times as many rows.
//
// The shares are disjoint and complete, but for the tail: samples that do not divide over the ranks.
// All shares must be equally long, as a rank with one step more would wait for the others for ever.
// Either the tail is dropped, or the order is repeated from its start, as often as needed (the
// semantics of PyTorch's DistributedSampler).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/data/batch_stream.hpp"

namespace ladder {

// The samples of one rank among those of an epoch that are left: `order` is the whole epoch's, its
// first `position` samples are used up. Pure; the same length on all ranks, 0 if there are fewer
// samples left than ranks and the tail is dropped. Throws CheckError for a rank outside [0, num_ranks).
std::vector<std::int64_t> samples_of_rank(std::span<const std::int64_t> order,
                                          std::int64_t position, int rank, int num_ranks,
                                          Tail tail);

// The same as a BatchStream wants it.
DataShard data_shard(int rank, int num_ranks, Tail tail);

}  // namespace ladder
