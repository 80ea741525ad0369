// One started operation: a small state machine, since messages make no progress by themselves.
//
//   all_reduce      all-to-all → fold → gather → done
//   reduce_scatter  all-to-all → fold → done
//   all others      all-to-all → done
//
// In the all-to-all of a reduction, every rank sends chunk r of its tensor to rank r, which folds
// the chunks in rank order. In the gather, every rank sends its finished chunk to all others. All
// messages of a phase are in flight at once. Both phases use the operation's one tag: between two
// ranks, messages with one tag keep their order, and all ranks post the first phase first.
//
// Lifetime: holds its tensors. It must not be destroyed before it is done, or MPI would write to
//           freed memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/comm/messages/message_group.hpp"

namespace ladder {

class MessageOperation {
 public:
  // Counts the call. Call exactly one start_…() next, with arguments that have been checked.
  MessageOperation(std::shared_ptr<MessageGroup> group, CommOp op);
  // A started barrier that the communicator needs for itself and that does not count as a call.
  static std::shared_ptr<MessageOperation> uncounted_barrier(std::shared_ptr<MessageGroup> group);

  void start_all_reduce(const at::Tensor& inout);
  void start_reduce_scatter(const at::Tensor& full, const at::Tensor& shard);
  void start_all_gather(const at::Tensor& shard, const at::Tensor& full);
  void start_broadcast(const at::Tensor& inout, int root);
  void start_send(const at::Tensor& tensor, int peer, int tag);
  void start_recv(const at::Tensor& tensor, int peer, int tag);
  void start_barrier();

  void advance();  // as far as possible without waiting
  void idle(double waited_s) { messages_->idle(waited_s); }
  bool is_done() const { return phase_ == Phase::kDone; }
  // Its position among the group's collectives, which determines the tag; -1 for point-to-point
  // operations and barriers.
  std::int64_t number() const { return number_; }
  const MessageGroup& group() const { return *group_; }

 private:
  enum class Phase { kAllToAll, kGather, kDone };
  struct Bytes {
    std::int64_t begin;
    std::int64_t count;
  };
  void take_number() { number_ = group_->num_started++; }
  Bytes chunk(int rank) const;  // of data_, cut the same way on every rank
  void post_all_to_all(std::byte* target);
  void post_gather();
  void fold();

  std::shared_ptr<MessageGroup> group_;
  CommOp op_;
  Phase phase_ = Phase::kAllToAll;
  std::int64_t number_ = -1;
  std::unique_ptr<Messages> messages_;
  at::Tensor tensor_;  // the whole tensor, `full` where there is a shard
  at::Tensor shard_;
  std::byte* data_ = nullptr;    // of tensor_
  std::byte* target_ = nullptr;  // receives the fold of this rank's chunk; null without a fold
  at::Tensor scratch_;           // the other ranks' pieces of this rank's chunk, in rank order
};

}  // namespace ladder
