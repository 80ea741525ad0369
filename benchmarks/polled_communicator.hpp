// A network that carries nothing unless somebody asks it to, as MPI does with messages above its
// eager limit.
//
// An all-reduce is sent in two halves, as MPI's has two phases. Each begins in a test() or wait():
// the first in the first one, the second in the first one that finds the first half done. The
// halves are those of the tensor, so the sums are the inner communicator's, to the bit, and so are
// the bytes but for the slices' rounding.
//
// One all-reduce is in flight at a time; everything else is the inner communicator's. Lifetime:
// `inner` outlives this and its Works.
#pragma once

#include <memory>
#include <utility>

#include "common/comm/forwarding_communicator.hpp"

namespace ladder {

class PolledCommunicator final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  WorkPtr start(const Operation& operation) override {
    if (operation.kind != CommOp::kAllReduce) return inner_.start(operation);
    return std::make_unique<PolledWork>(inner_, operation.tensor);
  }

 private:
  class PolledWork final : public Work {
   public:
    PolledWork(Communicator& comm, at::Tensor inout) : comm_(comm), inout_(std::move(inout)) {}
    bool test() override {
      while (half_ == nullptr || half_->test()) {
        if (num_started_ == 2) return true;
        start_half();
      }
      return false;
    }
    void wait() override {
      if (half_ == nullptr) start_half();
      half_->wait();
      if (num_started_ == 1) start_half();
      half_->wait();
    }

   private:
    void start_half() {
      if (half_ != nullptr) half_->wait();  // it is done
      const std::int64_t middle = inout_.numel() / 2;
      const std::int64_t end = num_started_ == 0 ? middle : inout_.numel();
      half_ = comm_.all_reduce(inout_.slice(0, num_started_ == 0 ? 0 : middle, end));
      ++num_started_;
    }

    Communicator& comm_;
    at::Tensor inout_;
    WorkPtr half_;  // the one started last
    int num_started_ = 0;
  };
};

}  // namespace ladder
