// For the judge: what a rank calls and shows, and a replica that drifts.
//
// A LockstepCommunicator would wait for the other ranks before each call, and so hide what trainers
// that are still broken wait for.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/nextafter.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/comm/forwarding_communicator.hpp"
#include "step3_naive_dp/why_does_it_hang/replica.hpp"

namespace ladder::hang {

// What a rank has done.
struct Conduct {
  TrainReport report;
  Traffic traffic;  // from the broadcast to the end of the last step, whatever follows its record()
  std::vector<Replica::Shown> shown;
  int root = 0;        // of a broadcast
  int num_groups = 0;  // that it has split off; what follows is of the group of all ranks
  std::vector<std::int64_t> gradients;  // the numels of their sums, in the order of the calls
  std::vector<double> scalars;          // what it adds to other sums
  std::vector<at::Tensor> sent;         // copies
  int num_on_their_way = 0;
  bool has_overlap = false;  // of sums of gradients
};

// In this step, one of the parameters that this rank sends has its last bit changed.
struct Drift {
  int rank = -1;
  std::size_t step = 0;
};

class Watch final : public ForwardingCommunicator {
 public:
  Watch(Communicator& inner, Conduct& conduct, const Drift& drift)
      : ForwardingCommunicator(inner), conduct_(conduct), drift_(drift) {}

  WorkPtr start(const Operation& operation) override {
    Operation passed = operation;
    if (operation.kind == CommOp::kBroadcast && operation.peer != 0) conduct_.root = operation.peer;
    if (operation.kind == CommOp::kAllReduce) look_at_sum(operation.tensor);
    if (operation.kind == CommOp::kSend) {
      conduct_.sent.push_back(operation.tensor.clone());
      if (drift_.rank == rank() && drift_.step == conduct_.sent.size())
        passed.tensor = drifted(operation.tensor);
    }
    return std::make_unique<WatchedWork>(inner_.start(passed), conduct_.num_on_their_way);
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    ++conduct_.num_groups;
    return inner_.split(color, key);
  }

 private:
  class WatchedWork final : public Work {
   public:
    WatchedWork(WorkPtr inner, int& num_on_their_way)
        : inner_(std::move(inner)), num_on_their_way_(num_on_their_way) {
      ++num_on_their_way_;
    }
    bool test() override { return inner_->test(); }
    void wait() override {
      inner_->wait();
      if (!std::exchange(has_waited_, true)) --num_on_their_way_;
    }

   private:
    WorkPtr inner_;
    int& num_on_their_way_;
    bool has_waited_ = false;
  };

  void look_at_sum(const at::Tensor& tensor) {
    if (tensor.scalar_type() == at::kDouble && tensor.numel() > 0) {
      conduct_.scalars.push_back(tensor.flatten()[0].item<double>());
      return;
    }
    conduct_.gradients.push_back(tensor.numel());
    conduct_.has_overlap = conduct_.has_overlap || conduct_.num_on_their_way > 0;
  }

  // In the first, the middle or the last element of three ranks.
  at::Tensor drifted(const at::Tensor& tensor) const {
    at::Tensor copy = tensor.clone();
    const at::Tensor one = copy.flatten().narrow(0, (tensor.numel() - 1) * rank() / 2, 1);
    one.copy_(at::nextafter(one, one + 1));
    return copy;
  }

  Conduct& conduct_;
  Drift drift_;
};

}  // namespace ladder::hang
