// What a call must send, as a formula to compare the meter (Communicator::traffic) with.
//
// Each function returns what rank `rank` of `world_size` sends for one call on the mpi and store
// transports, as described in message_communicator.hpp: one call, the payload's bytes, and the
// non-empty messages, where a long one counts as several. Sums of these can be compared, by ==,
// with the difference of two meter readings. A world of one rank sends nothing, on any transport.
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

struct Operation;

Traffic all_reduce_traffic(std::int64_t numel, std::int64_t element_bytes, int world_size,
                           int rank);
// `full_numel` is the numel of the whole tensor that is cut or assembled, not of the shard.
Traffic reduce_scatter_traffic(std::int64_t full_numel, std::int64_t element_bytes, int world_size,
                               int rank);
Traffic all_gather_traffic(std::int64_t full_numel, std::int64_t element_bytes, int world_size,
                           int rank);
Traffic broadcast_traffic(std::int64_t numel, std::int64_t element_bytes, int world_size, int rank,
                          int root);
Traffic send_traffic(std::int64_t numel, std::int64_t element_bytes);
// Of a call by its kind. A recv and a barrier send nothing.
Traffic traffic_of(CommOp kind, std::int64_t numel, std::int64_t element_bytes, int world_size,
                   int rank, int root = 0);
Traffic traffic_of(const Operation& operation, int world_size, int rank);

}  // namespace ladder
