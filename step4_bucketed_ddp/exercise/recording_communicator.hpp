// For the grader: writes down what is all-reduced, and how it is waited for.
//
// Collective, lifetime, and what it refuses: as LockstepCommunicator. Its agreements block, also in
// a hook, but they are none of the answer's waits.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "common/testing/lockstep_communicator.hpp"

namespace ladder::step4 {

struct Recording {
  std::vector<at::Tensor> all_reduced;  // in the order in which they were started
  int num_tests = 0;                    // calls of test() on what was started
  int num_waited_for = 0;               // operations, however often
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
  class RecordedWork final : public Work {
   public:
    RecordedWork(WorkPtr inner, std::shared_ptr<Recording> recording)
        : inner_(std::move(inner)), recording_(std::move(recording)) {}
    bool test() override {
      ++recording_->num_tests;
      return inner_->test();
    }
    void wait() override {
      if (!std::exchange(is_waited_for_, true)) ++recording_->num_waited_for;
      inner_->wait();
    }

   private:
    WorkPtr inner_;
    std::shared_ptr<Recording> recording_;
    bool is_waited_for_ = false;
  };

  std::shared_ptr<Recording> recording_ = std::make_shared<Recording>();
};

}  // namespace ladder::step4
