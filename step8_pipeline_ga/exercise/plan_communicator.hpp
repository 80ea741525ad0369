// For the judge: messages as the plan has them, and no others.
//
// A runner that starts another message than the plan's next one, sends a tensor of another shape, or
// starts a send while two earlier ones have not left, gets a CheckError. Whatever goes wrong on a rank, play_the_rest() sends and receives what
// the plan still has, NaN instead of numbers: so the other ranks come to an end, and nobody waits
// forever.
//
// Collective, lifetime: as LockstepCommunicator.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/Storage.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/testing/lockstep_communicator.hpp"
#include "step8_pipeline_ga/schedule/pipeline_schedule.hpp"

namespace ladder::step8 {

struct PlannedMessage {
  Action action;
  int peer = 0;
  std::vector<std::int64_t> shape;  // [B, T, C]
  at::ScalarType type = at::kFloat;
  bool is_send() const {
    return action.kind == ActionKind::kSendActivation || action.kind == ActionKind::kSendGradient;
  }
};

class PlanCommunicator final : public LockstepCommunicator {
 public:
  using LockstepCommunicator::LockstepCommunicator;

  // What this rank must start from here on, in this order.
  void follow(std::vector<PlannedMessage> messages) { messages_ = std::move(messages), next_ = 0; }
  // Called for each message that is about to start.
  std::function<void(const PlannedMessage& message, const at::Tensor& tensor)> on_message;

  // Throws CheckError if the plan has more.
  void check_is_over() const {
    check(
        next_ == messages_.size(), "the runner ends before '",
        [&] { return words(messages_[next_]); }, "', which the plan has");
  }
  void play_the_rest() {
    on_message = {};
    most_sends_ = messages_.size();
    std::vector<WorkPtr> works;
    while (next_ < messages_.size()) {
      const PlannedMessage& message = messages_[next_];
      works.push_back(
          message.is_send()
              ? send(at::full(message.shape, std::numeric_limits<float>::quiet_NaN(), message.type),
                     message.peer, 0)
              : recv(at::empty(message.shape, message.type), message.peer, 0));
    }
    for (const WorkPtr& work : works) work->wait();
    for (Works* const kept : {on_their_way_.get(), sends_.get()}) {
      for (const std::shared_ptr<Work>& work : std::exchange(*kept, {})) work->wait();
    }
  }

  WorkPtr start(const Operation& operation) override {
    if (!operation.is_message()) return LockstepCommunicator::start(operation);
    begin(operation);
    auto& works = operation.kind == CommOp::kSend ? sends_ : on_their_way_;
    return std::make_unique<KeptWork>(inner_.start(operation), works);
  }

 private:
  using Works = std::list<std::shared_ptr<Work>>;
  // Stays until it is done, even if an exception drops it.
  struct KeptWork final : Work {
    KeptWork(std::shared_ptr<Work> the_inner, std::shared_ptr<Works> the_works)
        : inner(std::move(the_inner)), works(std::move(the_works)) {
      works->push_back(inner);
    }
    bool test() override {
      const bool is_done = inner->test();
      if (is_done) std::erase(*works, inner);
      return is_done;
    }
    void wait() override {
      inner->wait();
      std::erase(*works, inner);
    }
    std::shared_ptr<Work> inner;
    std::shared_ptr<Works> works;
  };

  void begin(const Operation& operation) {
    const auto& [kind, tensor, shard, peer, tag, where] = operation;
    const bool is_send = operation.kind == CommOp::kSend;
    const auto does = [&] {
      return concat(is_send ? "a send to" : "a receive from", " stage ", operation.peer);
    };
    check(!is_send || last_sent_.lock().get() != tensor.storage().unsafeGetStorageImpl(),
          "the runner sends one tensor twice: the plan says when to send what backward leaves");
    check(next_ < messages_.size(), "the runner starts ", does,
          ", but the plan has no more messages");
    const PlannedMessage& message = messages_[next_];
    check(
        message.is_send() == is_send && message.peer == peer, "the runner starts ", does,
        ", but the plan's next message is '", [&] { return words(message); }, "'");
    check(
        tensor.sizes() == message.shape, "'", [&] { return words(message); }, "' has the shape ",
        tensor.sizes(), ", not ", at::IntArrayRef(message.shape));
    check(
        tensor.scalar_type() == message.type, "'", [&] { return words(message); }, "' is in ",
        tensor.scalar_type(), ", not ", message.type);
    check(
        !is_send || sends_->size() < most_sends_, "the runner starts '",
        [&] { return words(message); }, "' while ", most_sends_,
        " earlier sends have not left: each holds the memory of its tensor");
    if (on_message) on_message(message, tensor);
    ++next_;
    if (is_send) last_sent_ = tensor.storage().getWeakStorageImpl();
  }
  static std::string words(const PlannedMessage& message) {
    return concat(to_string(message.action), message.is_send() ? " to stage " : " from stage ",
                  message.peer);
  }

  std::vector<PlannedMessage> messages_;
  std::size_t next_ = 0;
  c10::weak_intrusive_ptr<c10::StorageImpl> last_sent_ = c10::Storage().getWeakStorageImpl();
  std::size_t most_sends_ = 2;
  std::shared_ptr<Works> on_their_way_ = std::make_shared<Works>();  // receives
  std::shared_ptr<Works> sends_ = std::make_shared<Works>();
};

}  // namespace ladder::step8
