// For the grader: writes down what is all-reduced, and how it is waited for.
//
// Collective, lifetime, and what it refuses: as LockstepCommunicator. Its agreements block, also in
// a hook, but they are none of the answer's waits.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "common/testing/lockstep_communicator.hpp"
#include "common/testing/recorded_work.hpp"

namespace ladder::step4 {

struct Recording : WorkCounts {
  std::vector<at::Tensor> all_reduced;  // in the order in which they were started
};

class RecordingCommunicator final : public LockstepCommunicator {
 public:
  using LockstepCommunicator::LockstepCommunicator;
  const Recording& recording() const { return *recording_; }

  WorkPtr all_reduce(at::Tensor inout) override {
    WorkPtr work = LockstepCommunicator::all_reduce(inout);
    recording_->all_reduced.push_back(std::move(inout));
    return std::make_unique<RecordedWork>(std::move(work), recording_);
  }

 private:
  std::shared_ptr<Recording> recording_ = std::make_shared<Recording>();
};

}  // namespace ladder::step4
