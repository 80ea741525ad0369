#include "common/comm/traffic_theory.hpp"

#include "common/comm/messages/message_group.hpp"
#include "common/comm/operation.hpp"
#include "common/comm/slice.hpp"

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

// Slice q goes to rank q.
OpTraffic all_to_all(std::int64_t numel, std::int64_t element_bytes, int world_size, int rank) {
  OpTraffic sent;
  for (int peer = 0; peer < world_size; ++peer) {
    if (peer != rank) add(sent, sent_to(1, slice_of(numel, world_size, peer).numel, element_bytes));
  }
  return sent;
}

// The rank's own slice goes to all others.
OpTraffic own_to_all(std::int64_t numel, std::int64_t element_bytes, int world_size, int rank) {
  return sent_to(world_size - 1, slice_of(numel, world_size, rank).numel, element_bytes);
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
  add(sent, own_to_all(numel, element_bytes, world_size, rank));
  return one_call(CommOp::kAllReduce, sent);
}

Traffic reduce_scatter_traffic(std::int64_t full_numel, std::int64_t element_bytes, int world_size,
                               int rank) {
  return one_call(CommOp::kReduceScatter, all_to_all(full_numel, element_bytes, world_size, rank));
}

Traffic all_gather_traffic(std::int64_t full_numel, std::int64_t element_bytes, int world_size,
                           int rank) {
  return one_call(CommOp::kAllGather, own_to_all(full_numel, element_bytes, world_size, rank));
}

Traffic broadcast_traffic(std::int64_t numel, std::int64_t element_bytes, int world_size, int rank,
                          int root) {
  const std::int64_t num_peers = rank == root ? world_size - 1 : 0;
  return one_call(CommOp::kBroadcast, sent_to(num_peers, numel, element_bytes));
}

Traffic send_traffic(std::int64_t numel, std::int64_t element_bytes) {
  return one_call(CommOp::kSend, sent_to(1, numel, element_bytes));
}

Traffic traffic_of(CommOp kind, std::int64_t numel, std::int64_t element_bytes, int world_size,
                   int rank, int root) {
  switch (kind) {
    case CommOp::kAllReduce:
      return all_reduce_traffic(numel, element_bytes, world_size, rank);
    case CommOp::kReduceScatter:
      return reduce_scatter_traffic(numel, element_bytes, world_size, rank);
    case CommOp::kAllGather:
      return all_gather_traffic(numel, element_bytes, world_size, rank);
    case CommOp::kBroadcast:
      return broadcast_traffic(numel, element_bytes, world_size, rank, root);
    case CommOp::kSend:
      return send_traffic(numel, element_bytes);
    case CommOp::kRecv:
    case CommOp::kBarrier:
      break;
  }
  return one_call(kind, {});
}

Traffic traffic_of(const Operation& operation, int world_size, int rank) {
  const at::Tensor& tensor = operation.tensor;
  const bool has_tensor = tensor.defined();
  return traffic_of(operation.kind, has_tensor ? tensor.numel() : 0,
                    has_tensor ? tensor.element_size() : 0, world_size, rank, operation.peer);
}

}  // namespace ladder
