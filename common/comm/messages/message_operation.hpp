// One started operation: a small state machine, since messages make no progress by themselves.
//
//   all_reduce      all-to-all → fold → gather → done
//   reduce_scatter  all-to-all → fold → done
//   all others      all-to-all → done
//
// In the all-to-all of a reduction, every rank sends slice r of its tensor to rank r, which folds
// the slices in rank order. In the gather, every rank sends its finished slice to all others. All
// messages of a phase are in flight at once. Both phases use the operation's one tag: between two
// ranks, messages with one tag keep their order, and all ranks post the first phase first.
//
// Lifetime: holds its tensors. It must not be destroyed before it is done, or MPI would write to
//           freed memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/comm/messages/message_group.hpp"
#include "common/comm/operation.hpp"
#include "common/comm/rank_order_fold.hpp"

namespace ladder {

class MessageOperation {
 public:
  // Starts an operation that has been checked.
  MessageOperation(std::shared_ptr<MessageGroup> group, Operation operation);

  void advance();  // as far as possible without waiting
  void idle(double waited_s) { messages_->idle(waited_s); }
  bool is_done() const { return phase_ == Phase::kDone; }
  // Its position among the group's collectives, which determines the tag; -1 for point-to-point
  // operations and barriers.
  std::int64_t number() const { return number_; }
  const MessageGroup& group() const { return *group_; }

 private:
  enum class Phase { kAllToAll, kGather, kDone };
  using Bytes = RankSlices::Bytes;
  Channel channel() const {
    return operation_.is_message() ? Channel::kPointToPoint : Channel::kCollectives;
  }
  int tag() const { return operation_.is_message() ? operation_.tag : group_->tag_of(number_); }
  void send(Bytes bytes, int peer);
  void receive(Bytes bytes, int peer);
  void post();
  void post_all_to_all(std::byte* target);
  void post_gather();
  void fold();

  std::shared_ptr<MessageGroup> group_;
  Operation operation_;
  Phase phase_ = Phase::kAllToAll;
  std::int64_t number_ = -1;
  std::unique_ptr<Messages> messages_;
  RankSlices slices_;            // of the tensor
  std::byte* target_ = nullptr;  // receives the fold of this rank's slice
};

}  // namespace ladder
