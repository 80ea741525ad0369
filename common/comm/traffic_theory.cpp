#include "common/comm/traffic_theory.hpp"

#include "common/comm/messages/message_group.hpp"
#include "common/comm/rank_order_fold.hpp"

namespace ladder {
namespace {

// `numel` elements to each of `num_peers`.
OpTraffic sent_to(std::int64_t num_peers, std::int64_t numel, std::int64_t element_bytes) {
  const std::int64_t bytes = numel * element_bytes;
  return {.bytes_sent = num_peers * bytes,
          .messages = num_peers * ((bytes + kLongestMessageBytes - 1) / kLongestMessageBytes)};
}

void add(OpTraffic& sum, const OpTraffic& more) {
  sum.bytes_sent += more.bytes_sent;
  sum.messages += more.messages;
}

// Chunk q goes to rank q; the first chunks are one element longer.
OpTraffic all_to_all(std::int64_t numel, std::int64_t element_bytes, int world_size, int rank) {
  const std::int64_t length = numel / world_size, num_longer = numel % world_size;
  const std::int64_t longer_peers = num_longer - (rank < num_longer ? 1 : 0);
  OpTraffic sent = sent_to(longer_peers, length + 1, element_bytes);
  add(sent, sent_to(world_size - 1 - longer_peers, length, element_bytes));
  return sent;
}

// The rank's own chunk goes to all others.
OpTraffic gather(std::int64_t numel, std::int64_t element_bytes, int world_size, int rank) {
  return sent_to(world_size - 1, chunk_of(numel, world_size, rank).numel, element_bytes);
}

Traffic one_call(CommOp op, OpTraffic sent) {
  sent.calls = 1;
  Traffic traffic;
  traffic[op] = sent;
  return traffic;
}

}  // namespace

Traffic all_reduce_traffic(std::int64_t numel, std::int64_t element_bytes, int world_size,
                           int rank) {
  OpTraffic sent = all_to_all(numel, element_bytes, world_size, rank);
  add(sent, gather(numel, element_bytes, world_size, rank));
  return one_call(CommOp::kAllReduce, sent);
}

Traffic reduce_scatter_traffic(std::int64_t full_numel, std::int64_t element_bytes, int world_size,
                               int rank) {
  return one_call(CommOp::kReduceScatter, all_to_all(full_numel, element_bytes, world_size, rank));
}

Traffic all_gather_traffic(std::int64_t full_numel, std::int64_t element_bytes, int world_size,
                           int rank) {
  return one_call(CommOp::kAllGather, gather(full_numel, element_bytes, world_size, rank));
}

Traffic broadcast_traffic(std::int64_t numel, std::int64_t element_bytes, int world_size, int rank,
                          int root) {
  const std::int64_t num_peers = rank == root ? world_size - 1 : 0;
  return one_call(CommOp::kBroadcast, sent_to(num_peers, numel, element_bytes));
}

Traffic send_traffic(std::int64_t numel, std::int64_t element_bytes) {
  return one_call(CommOp::kSend, sent_to(1, numel, element_bytes));
}

}  // namespace ladder
