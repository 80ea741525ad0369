// For the grader: a network that is slow or fast, and records what is reduce-scattered and waited for.
//
// On the slow one test() is never true: whoever needs a result has to wait for it, so what is on its
// way at any moment is a matter of the answer, not of timing. On the fast one test() is always true.
//
// Collective, lifetime, and what it refuses: as LockstepCommunicator. Its agreements block, also in
// a hook, but they do not count as waits of the answer.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "common/testing/lockstep_communicator.hpp"
#include "common/testing/recorded_work.hpp"

namespace ladder::step6 {

class RecordingCommunicator final : public LockstepCommunicator {
 public:
  using LockstepCommunicator::LockstepCommunicator;
  const WorkCounts& recording() const { return *recording_; }
  void be_fast() { is_fast_ = true; }
  // Of each unit when it leaves, from here on.
  const std::vector<at::Tensor>& keep_contents() {
    keeps_contents_ = true;
    return contents_;
  }

  WorkPtr reduce_scatter(const at::Tensor& full, at::Tensor shard) override {
    if (keeps_contents_) contents_.push_back(full.clone());
    WorkPtr work = LockstepCommunicator::reduce_scatter(full, std::move(shard));
    if (is_fast_) return std::make_unique<FastWork>(std::move(work), recording_);
    return std::make_unique<SlowWork>(std::move(work), recording_);
  }

 private:
  class FastWork final : public RecordedWork {
   public:
    using RecordedWork::RecordedWork;
    bool test() override {
      RecordedWork::test();
      wait();
      return true;
    }
  };

  std::shared_ptr<WorkCounts> recording_ = std::make_shared<WorkCounts>();
  std::vector<at::Tensor> contents_;
  bool keeps_contents_ = false;
  bool is_fast_ = false;
};

}  // namespace ladder::step6
