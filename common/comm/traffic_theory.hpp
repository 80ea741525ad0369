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
// The ranks are on `machines`: on one, if they are left out.
//
// Pure. Preconditions: numel ≥ 0 and 0 ≤ rank, root < world_size.
#pragma once

#include <cstdint>

#include "common/comm/link.hpp"
#include "common/comm/machines.hpp"
#include "common/comm/traffic.hpp"

namespace ladder {

struct Operation;

Traffic all_reduce_traffic(std::int64_t numel, std::int64_t element_bytes, int world_size, int rank,
                           const Machines& machines = {});
// `full_numel` is the numel of the whole tensor that is cut or assembled, not of the shard.
Traffic reduce_scatter_traffic(std::int64_t full_numel, std::int64_t element_bytes, int world_size,
                               int rank, const Machines& machines = {});
Traffic all_gather_traffic(std::int64_t full_numel, std::int64_t element_bytes, int world_size,
                           int rank, const Machines& machines = {});
Traffic broadcast_traffic(std::int64_t numel, std::int64_t element_bytes, int world_size, int rank,
                          int root, const Machines& machines = {});
Traffic send_traffic(std::int64_t numel, std::int64_t element_bytes, bool is_outside = false);

// A call by its kind, and what it puts on the links of a rank. A recv and a barrier send nothing.
struct Sent {
  Traffic traffic;
  LinksUse links;
};
// `peer` is the root of a broadcast, or the receiver of a message.
Sent sent_by(CommOp kind, std::int64_t numel, std::int64_t element_bytes, int world_size, int rank,
             int peer = 0, const Machines& machines = {});
Sent sent_by(const Operation& operation, int world_size, int rank, const Machines& machines = {});
Traffic traffic_of(const Operation& operation, int world_size, int rank,
                   const Machines& machines = {});

}  // namespace ladder
