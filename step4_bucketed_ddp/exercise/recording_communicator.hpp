// For the grader: passes everything on to a real communicator and writes down what is all-reduced,
// and how it is waited for.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "common/testing/forwarding_communicator.hpp"

namespace ladder::step4 {

struct Recording {
  std::vector<at::Tensor> all_reduced;  // in the order in which they were started
  int num_tests = 0;                    // calls of test() on what was started
  int num_waits = 0;
};

class RecordingCommunicator final : public ForwardingCommunicator {
 public:
  explicit RecordingCommunicator(Communicator& inner) : ForwardingCommunicator(inner) {}
  const Recording& recording() const { return *recording_; }

  WorkPtr all_reduce(at::Tensor inout) override {
    recording_->all_reduced.push_back(inout);
    return std::make_unique<RecordedWork>(inner_.all_reduce(inout), recording_);
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
      ++recording_->num_waits;
      inner_->wait();
    }

   private:
    WorkPtr inner_;
    std::shared_ptr<Recording> recording_;
  };

  std::shared_ptr<Recording> recording_ = std::make_shared<Recording>();
};

}  // namespace ladder::step4
