// Communicators with one fault each, for the wrong answers.
#pragma once

#include <ATen/ops/empty.h>

#include <memory>
#include <vector>

#include "common/testing/forwarding_communicator.hpp"

namespace ladder::step1 {

class FaultyAllReduce : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  WorkPtr start(const Operation& operation) final {
    return operation.kind == CommOp::kAllReduce ? reduce(operation.tensor)
                                                : inner_.start(operation);
  }

 private:
  virtual WorkPtr reduce(const at::Tensor& inout) = 0;
};

class ReducesTheFirstBucketOnly final : public FaultyAllReduce {
 public:
  using FaultyAllReduce::FaultyAllReduce;
  WorkPtr reduce(const at::Tensor& inout) override {
    if (num_calls_++ % 2 == 0) return inner_.all_reduce(inout);
    return std::make_unique<DoneWork>();
  }

 private:
  int num_calls_ = 0;
};

// Rank N-1's value first, rank 0's last: the right sum in another order.
class FoldsBackwards final : public FaultyAllReduce {
 public:
  using FaultyAllReduce::FaultyAllReduce;
  WorkPtr reduce(const at::Tensor& inout) override {
    const at::Tensor all = at::empty({size() * inout.numel()});
    all_gather(inout, all)->wait();
    const auto of_rank = [&](int r) { return all.narrow(0, r * inout.numel(), inout.numel()); };
    inout.copy_(of_rank(size() - 1));
    for (int r = size() - 2; r >= 0; --r) inout.add_(of_rank(r));
    return std::make_unique<DoneWork>();
  }
};

class OnlyRankZeroReduces final : public FaultyAllReduce {
 public:
  using FaultyAllReduce::FaultyAllReduce;
  WorkPtr reduce(const at::Tensor& inout) override {
    if (rank() == 0) return inner_.all_reduce(inout);
    return std::make_unique<DoneWork>();
  }
};

// The right sums, in twice as many operations.
class HalvesBuckets final : public FaultyAllReduce {
 public:
  using FaultyAllReduce::FaultyAllReduce;
  WorkPtr reduce(const at::Tensor& inout) override {
    const std::int64_t half = inout.numel() / 2;
    inner_.all_reduce(inout.narrow(0, 0, half))->wait();
    return inner_.all_reduce(inout.narrow(0, half, inout.numel() - half));
  }
};

class KeepsBuckets final : public FaultyAllReduce {
 public:
  using FaultyAllReduce::FaultyAllReduce;
  WorkPtr reduce(const at::Tensor& inout) override {
    buckets.push_back(inout.clone());
    return std::make_unique<DoneWork>();
  }
  std::vector<at::Tensor> buckets;
};

}  // namespace ladder::step1
