// What a call must send, as a formula: the meter (Communicator::traffic) is held against it.
//
// Each function gives what rank `rank` of `world_size` sends for one call on the mpi transport, as
// mpi_communicator.hpp describes it: one call, the payload's bytes, and the non-empty messages, a
// long one counted as the pieces that MpiLimits allows by default. Their sums can be compared with
// == against a difference of two meter readings. A world of one rank sends nothing, on any
// transport.
//
//   Traffic expected;
//   for (const Bucket& bucket : plan) expected += all_reduce_traffic(bucket.numel, 4, size, rank);
//   EXPECT_EQ(sent, expected);
//
// Pure. Preconditions: numel ≥ 0 and 0 ≤ rank, root < world_size.
#pragma once

#include <cstdint>

#include "common/comm/traffic.hpp"

namespace ladder {

Traffic all_reduce_traffic(std::int64_t numel, std::int64_t element_bytes, int world_size,
                           int rank);
// `full_numel` is that of the tensor that is cut or put together, not of the shard.
Traffic reduce_scatter_traffic(std::int64_t full_numel, std::int64_t element_bytes, int world_size,
                               int rank);
Traffic all_gather_traffic(std::int64_t full_numel, std::int64_t element_bytes, int world_size,
                           int rank);
Traffic broadcast_traffic(std::int64_t numel, std::int64_t element_bytes, int world_size, int rank,
                          int root);
Traffic send_traffic(std::int64_t numel, std::int64_t element_bytes);

}  // namespace ladder
