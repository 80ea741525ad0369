// For the checks: a model of six tensors in four buckets, no two of the same length, whose gradients
// backward computes in any order asked for, and its bucketer.
//
//   a  weight 64 | bias 16       bucket 3: filled to the last element
//   b  weight 200 | bias 16      bucket 2: larger than the capacity | bucket 1
//   c  fixed | gain 32, bias 16  frozen: in no bucket | bucket 0
#pragma once

#include <ATen/ops/ones.h>

#include "step4_bucketed_ddp/exercise/arm_and_wait.hpp"
#include "step4_bucketed_ddp/gradient_bucketer.hpp"

namespace ladder::step4 {

inline const Order kForward = {0, 1, 2, 3, 5, 6};  // backward is in the plan's order
inline const Order kMixed = {1, 6, 3, 0, 5, 2};    // it completes bucket 2 first, then 0, 3 and 1

struct BucketedModel {
  static constexpr int kNumBuckets = 4;

  explicit BucketedModel(Communicator& comm, StartReduction start = start_all_reduce)
      : bucketer(grads, plan, comm, std::move(start)) {}

  void arm(std::int64_t count) { bucketer.arm(count); }
  void backward(const Order& order) const { sum_of(flat, order).backward(); }
  void wait() { bucketer.wait(); }
  // Buckets in the order in which they leave.
  const std::vector<GradientBucket>& buckets() const { return plan; }

  static std::vector<Unit> units() {
    const auto leaf = [](std::int64_t numel) { return at::ones({numel}).set_requires_grad(true); };
    return {{"a", {{"a.weight", leaf(64)}, {"a.bias", leaf(16)}}},
            {"b", {{"b.weight", leaf(200)}, {"b.bias", leaf(16)}}},
            {"c", {{"c.fixed", at::ones({11})}, {"c.gain", leaf(32)}, {"c.bias", leaf(16)}}}};
  }

  FlatModel flat{units()};
  FlatGradients grads{flat};
  std::vector<GradientBucket> plan = plan_buckets(flat.layout(), /*capacity_bytes=*/4 * 80);
  GradientBucketer bucketer;
};

}  // namespace ladder::step4
