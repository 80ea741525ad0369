// For the grader: a slow network, which records what is all-reduced, and how it is waited for.
//
// Collective, lifetime, and what it refuses: as LockstepCommunicator. Its agreements block, also in
// a hook, but they do not count as waits of the answer.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "common/testing/lockstep_communicator.hpp"
#include "common/testing/recorded_work.hpp"

namespace ladder::step4 {

struct Recording : WorkCounts {
  std::vector<at::Tensor> all_reduced;  // in the order in which they were started
  std::vector<at::Tensor> contents;     // of each at its start, if they are to be kept
};

class RecordingCommunicator final : public LockstepCommunicator {
 public:
  using LockstepCommunicator::LockstepCommunicator;
  const Recording& recording() const { return *recording_; }
  void keep_contents() { keeps_contents_ = true; }

  WorkPtr all_reduce(at::Tensor inout) override {
    if (keeps_contents_) recording_->contents.push_back(inout.clone());
    WorkPtr work = LockstepCommunicator::all_reduce(inout);
    recording_->all_reduced.push_back(std::move(inout));
    return std::make_unique<SlowWork>(std::move(work), recording_);
  }

 private:
  std::shared_ptr<Recording> recording_ = std::make_shared<Recording>();
  bool keeps_contents_ = false;
};

}  // namespace ladder::step4
