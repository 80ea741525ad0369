// Communicators with one fault each, for the wrong answers.
#pragma once

#include <ATen/ops/empty.h>

#include <memory>
#include <utility>
#include <vector>

#include "common/testing/forwarding_communicator.hpp"

namespace ladder::step1 {

class NoWork final : public Work {
 public:
  bool test() override { return true; }
  void wait() override {}
};

class ReducesTheFirstBucketOnly final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  WorkPtr all_reduce(at::Tensor inout) override {
    if (num_calls_++ % 2 == 0) return ForwardingCommunicator::all_reduce(std::move(inout));
    return std::make_unique<NoWork>();
  }

 private:
  int num_calls_ = 0;
};

// Rank N-1's value first, rank 0's last: the right sum in another order.
class FoldsBackwards final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  WorkPtr all_reduce(at::Tensor inout) override {
    const at::Tensor all = at::empty({size() * inout.numel()});
    all_gather(inout, all)->wait();
    const auto of_rank = [&](int r) { return all.narrow(0, r * inout.numel(), inout.numel()); };
    inout.copy_(of_rank(size() - 1));
    for (int r = size() - 2; r >= 0; --r) inout.add_(of_rank(r));
    return std::make_unique<NoWork>();
  }
};

class OnlyRankZeroReduces final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  WorkPtr all_reduce(at::Tensor inout) override {
    if (rank() == 0) return ForwardingCommunicator::all_reduce(std::move(inout));
    return std::make_unique<NoWork>();
  }
};

// The right sums, in twice as many operations.
class HalvesBuckets final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  WorkPtr all_reduce(at::Tensor inout) override {
    const std::int64_t half = inout.numel() / 2;
    ForwardingCommunicator::all_reduce(inout.narrow(0, 0, half))->wait();
    return ForwardingCommunicator::all_reduce(inout.narrow(0, half, inout.numel() - half));
  }
};

class KeepsBuckets final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  WorkPtr all_reduce(at::Tensor inout) override {
    buckets.push_back(inout.clone());
    return std::make_unique<NoWork>();
  }
  std::vector<at::Tensor> buckets;
};

}  // namespace ladder::step1
