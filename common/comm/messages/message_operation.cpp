#include "common/comm/messages/message_operation.hpp"

#include <cstring>
#include <utility>

namespace ladder {

MessageOperation::MessageOperation(std::shared_ptr<MessageGroup> group, Operation operation)
    : group_(std::move(group)),
      operation_(std::move(operation)),
      messages_(group_->new_messages(operation_.kind)),
      slices_(operation_.tensor, group_->rank, group_->size) {
  if (!operation_.is_barrier() && !operation_.is_message()) number_ = group_->num_started++;
  operation_.is_barrier() ? messages_->barrier() : post();
}

void MessageOperation::post() {
  const at::Tensor& tensor = operation_.tensor;
  const Bytes whole(data_of(tensor), tensor.nbytes());
  switch (operation_.kind) {
    case CommOp::kAllReduce:
      return post_all_to_all(slices_.own().data());
    case CommOp::kReduceScatter:
      return post_all_to_all(data_of(operation_.shard));
    case CommOp::kAllGather: {
      const Bytes own = slices_.own();
      const std::byte* const shard = data_of(operation_.shard);
      if (own.size() > 0 && shard != own.data()) std::memmove(own.data(), shard, own.size());
      return post_gather();
    }
    case CommOp::kBroadcast:
      if (group_->rank != operation_.peer) return receive(whole, operation_.peer);
      for (int peer = 0; peer < group_->size; ++peer) {
        if (peer != group_->rank) send(whole, peer);
      }
      return;
    case CommOp::kSend:
      return send(whole, operation_.peer);
    default:
      return receive(whole, operation_.peer);
  }
}

void MessageOperation::send(Bytes bytes, int peer) {
  messages_->send(channel(), bytes.data(), std::ssize(bytes), peer, tag());
}

void MessageOperation::receive(Bytes bytes, int peer) {
  messages_->receive(channel(), bytes.data(), std::ssize(bytes), peer, tag());
}

void MessageOperation::advance() {
  while (phase_ != Phase::kDone && messages_->test()) {
    const bool is_scattered = phase_ == Phase::kAllToAll && operation_.is_sum();
    if (is_scattered) fold();
    if (is_scattered && operation_.kind == CommOp::kAllReduce) {
      phase_ = Phase::kGather;
      post_gather();
    } else {
      phase_ = Phase::kDone;
    }
  }
}

void MessageOperation::post_all_to_all(std::byte* target) {
  const int rank = group_->rank, size = group_->size;
  target_ = target;
  slices_.make_room();
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) receive(slices_.arriving(peer), peer);
  }
  // Each rank starts with its successor, so that no rank receives from all others at once.
  for (int i = 1; i < size; ++i) {
    const int peer = (rank + i) % size;
    send(slices_.slice(peer), peer);
  }
}

void MessageOperation::fold() {
  fold_in_rank_order(slices_.pieces(), group_->rank, target_, slices_.dtype(), slices_.own_numel());
  slices_.drop_room();  // before the gather: the peak is the tensor's size, not more
}

void MessageOperation::post_gather() {
  const int rank = group_->rank, size = group_->size;
  for (int i = 1; i < size; ++i) {
    const int peer = (rank + size - i) % size;  // in the order in which they send to this rank
    receive(slices_.slice(peer), peer);
  }
  for (int i = 1; i < size; ++i) send(slices_.own(), (rank + i) % size);
}

}  // namespace ladder
