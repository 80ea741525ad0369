// For the grader: counts what is started and what is waited for, and says what it costs.
//
// Collective, lifetime, and what it refuses: as LockstepCommunicator.
#pragma once

#include <memory>
#include <utility>

#include "common/core/memory_ledger.hpp"
#include "common/testing/lockstep_communicator.hpp"

namespace ladder::step5 {

class RecordingCommunicator final : public LockstepCommunicator {
 public:
  using LockstepCommunicator::LockstepCommunicator;

  int num_started() const { return *num_started_; }
  int num_waited_for() const { return *num_waited_for_; }  // operations, however often

  WorkPtr all_reduce(at::Tensor inout) override {
    return record(LockstepCommunicator::all_reduce(std::move(inout)));
  }
  WorkPtr reduce_scatter(const at::Tensor& full, at::Tensor shard) override {
    return record(LockstepCommunicator::reduce_scatter(full, std::move(shard)));
  }
  WorkPtr all_gather(const at::Tensor& shard, at::Tensor full) override {
    return record(LockstepCommunicator::all_gather(shard, std::move(full)));
  }
  WorkPtr broadcast(at::Tensor inout, int root) override {
    return record(LockstepCommunicator::broadcast(std::move(inout), root));
  }

 private:
  class RecordedWork final : public Work {
   public:
    RecordedWork(WorkPtr inner, std::shared_ptr<int> num_waited_for)
        : inner_(std::move(inner)), num_waited_for_(std::move(num_waited_for)) {}
    bool test() override { return inner_->test(); }
    void wait() override {
      if (!std::exchange(is_waited_for_, true)) ++*num_waited_for_;
      inner_->wait();
    }

   private:
    WorkPtr inner_;
    std::shared_ptr<int> num_waited_for_;
    bool is_waited_for_ = false;
  };

  WorkPtr record(WorkPtr work) {
    ++*num_started_;
    return std::make_unique<RecordedWork>(std::move(work), num_waited_for_);
  }

  std::shared_ptr<int> num_started_ = std::make_shared<int>(0);
  std::shared_ptr<int> num_waited_for_ = std::make_shared<int>(0);
};

// What this rank sends and holds from here on.
class Meter {
 public:
  explicit Meter(const Communicator& comm) : comm_(comm), sent_(comm.traffic().bytes_sent()) {
    reset_memory_peaks();
    held_ = read_memory().total_live_bytes;
  }
  std::int64_t sent_bytes() const { return comm_.traffic().bytes_sent() - sent_; }
  std::int64_t most_held_bytes() const { return read_memory().peak_bytes - held_; }

 private:
  const Communicator& comm_;
  std::int64_t sent_ = 0, held_ = 0;
};

}  // namespace ladder::step5
