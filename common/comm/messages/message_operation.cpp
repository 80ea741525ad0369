#include "common/comm/messages/message_operation.hpp"

#include <ATen/ops/empty.h>

#include <cstring>
#include <utility>
#include <vector>

#include "common/comm/rank_order_fold.hpp"
#include "common/core/memory_ledger.hpp"

namespace ladder {
namespace {

// Through the const accessor where a transport only reads; it never writes through a pointer that
// it sends from.
std::byte* bytes_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(const_cast<void*>(tensor.const_data_ptr()));
}

std::int64_t num_bytes(const at::Tensor& tensor) {
  return static_cast<std::int64_t>(tensor.nbytes());
}

}  // namespace

MessageOperation::MessageOperation(std::shared_ptr<MessageGroup> group, CommOp op)
    : group_(std::move(group)), op_(op), messages_(group_->new_messages(op)) {
  ++(*group_->meter)[op].calls;
}

std::shared_ptr<MessageOperation> MessageOperation::uncounted_barrier(
    std::shared_ptr<MessageGroup> group) {
  auto operation = std::make_shared<MessageOperation>(group, CommOp::kBarrier);
  --(*group->meter)[CommOp::kBarrier].calls;
  operation->start_barrier();
  return operation;
}

MessageOperation::Bytes MessageOperation::chunk(int rank) const {
  const auto range = chunk_of(tensor_.numel(), group_->size, rank);
  const std::int64_t item_bytes = tensor_.element_size();
  return {range.begin * item_bytes, range.numel * item_bytes};
}

void MessageOperation::start_all_reduce(const at::Tensor& inout) {
  take_number();
  tensor_ = inout;
  data_ = bytes_of(inout);
  post_all_to_all(data_ + chunk(group_->rank).begin);
}

void MessageOperation::start_reduce_scatter(const at::Tensor& full, const at::Tensor& shard) {
  take_number();
  tensor_ = full;
  shard_ = shard;
  data_ = bytes_of(full);
  post_all_to_all(bytes_of(shard));
}

void MessageOperation::start_all_gather(const at::Tensor& shard, const at::Tensor& full) {
  take_number();
  tensor_ = full;
  shard_ = shard;
  data_ = bytes_of(full);
  const Bytes own = chunk(group_->rank);
  if (own.count > 0 && bytes_of(shard) != data_ + own.begin) {
    std::memmove(data_ + own.begin, bytes_of(shard), static_cast<std::size_t>(own.count));
  }
  post_gather();
}

void MessageOperation::start_broadcast(const at::Tensor& inout, int root) {
  take_number();
  tensor_ = inout;
  const int tag = group_->tag_of(number_);
  if (group_->rank != root) {
    messages_->receive(Channel::kCollectives, bytes_of(inout), num_bytes(inout), root, tag);
    return;
  }
  for (int peer = 0; peer < group_->size; ++peer) {
    if (peer == root) continue;
    messages_->send(Channel::kCollectives, bytes_of(inout), num_bytes(inout), peer, tag);
  }
}

void MessageOperation::start_send(const at::Tensor& tensor, int peer, int tag) {
  tensor_ = tensor;
  messages_->send(Channel::kPointToPoint, bytes_of(tensor), num_bytes(tensor), peer, tag);
}

void MessageOperation::start_recv(const at::Tensor& tensor, int peer, int tag) {
  tensor_ = tensor;
  messages_->receive(Channel::kPointToPoint, bytes_of(tensor), num_bytes(tensor), peer, tag);
}

void MessageOperation::start_barrier() {
  messages_->barrier();
}

void MessageOperation::advance() {
  while (phase_ != Phase::kDone && messages_->test()) {
    if (phase_ == Phase::kAllToAll && target_ != nullptr) fold();
    if (phase_ == Phase::kAllToAll && op_ == CommOp::kAllReduce) {
      phase_ = Phase::kGather;
      post_gather();
    } else {
      phase_ = Phase::kDone;
    }
  }
}

void MessageOperation::post_all_to_all(std::byte* target) {
  const int rank = group_->rank;
  const int size = group_->size;
  const int tag = group_->tag_of(number_);
  const Bytes own = chunk(rank);
  target_ = target;
  {
    const MemoryScope scope(MemoryCategory::kCommunication);
    scratch_ = at::empty({(size - 1) * own.count}, at::kByte);
  }
  std::byte* slot = bytes_of(scratch_);
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    messages_->receive(Channel::kCollectives, slot, own.count, peer, tag);
    slot += own.count;
  }
  // Each rank starts with its successor, so that no rank receives from all others at once.
  for (int i = 1; i < size; ++i) {
    const int peer = (rank + i) % size;
    const Bytes piece = chunk(peer);
    messages_->send(Channel::kCollectives, data_ + piece.begin, piece.count, peer, tag);
  }
}

void MessageOperation::fold() {
  const Bytes own = chunk(group_->rank);
  std::vector<std::byte*> pieces;
  std::byte* slot = bytes_of(scratch_);
  for (int r = 0; r < group_->size; ++r) {
    const bool is_own = r == group_->rank;
    pieces.push_back(is_own ? data_ + own.begin : slot);
    if (!is_own) slot += own.count;
  }
  fold_in_rank_order(pieces, group_->rank, target_, tensor_.scalar_type(),
                     own.count / tensor_.element_size());
  scratch_.reset();  // before the gather: the peak is the tensor's size, not more
}

void MessageOperation::post_gather() {
  const int rank = group_->rank;
  const int size = group_->size;
  const int tag = group_->tag_of(number_);
  for (int i = 1; i < size; ++i) {
    const int peer = (rank + size - i) % size;  // in the order in which they send to this rank
    const Bytes piece = chunk(peer);
    messages_->receive(Channel::kCollectives, data_ + piece.begin, piece.count, peer, tag);
  }
  const Bytes own = chunk(rank);
  for (int i = 1; i < size; ++i) {
    messages_->send(Channel::kCollectives, data_ + own.begin, own.count, (rank + i) % size, tag);
  }
}

}  // namespace ladder
