// For the grader: a model whose gradients every rank can work out in its head.
//
//   embedding     tokens 70, positions 20          bucket 4: filled to the last element
//   block0        weight 80, bias 5                bucket 3
//   block1        weight 300 | bias 7              bucket 2: larger than the capacity | bucket 1, with gain
//   head          gain 9 | fixed | weight 33, bias 3   frozen: in no bucket | bucket 0
//
// No two buckets have the same length, so a rank that starts the wrong one sends the wrong number
// of elements. The loss is linear in every parameter, and autograd visits them in any order asked
// for.
#pragma once

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "common/optim/flat_model.hpp"
#include "step4_bucketed_ddp/bucket_plan.hpp"

namespace ladder::step4 {

using Order = std::vector<std::int64_t>;
inline const Order kForward = {0, 1, 2, 3, 4, 5, 6, 8, 9};  // backward is in the plan's order
// Backward completes bucket 2 first, then 0, 3, 1 and 4.
inline const Order kMixed = {1, 6, 2, 8, 3, 5, 0, 9, 4};

struct GradedModel {
  static constexpr std::int64_t kNumBuckets = 5;

  explicit GradedModel(int the_rank) : rank(the_rank) {}

  // What rank r's microbatch j adds to each element of tensor t: to tensor 0 a number that one can
  // add up in one's head, to the others numbers whose sum depends on the order.
  static float share(std::int64_t r, std::int64_t microbatch, std::int64_t tensor) {
    if (tensor == 0) return static_cast<float>(r + 1);
    const float sign = (r + microbatch) % 2 == 0 ? 1.0F : -1.0F;
    return sign * (1.0F + 0.1F * static_cast<float>(tensor)) *
           std::pow(37.0F, static_cast<float>((r * 2 + microbatch) % 5) - 2.0F);
  }

  // Backward adds to the gradients from the last tensor of `order` to the first.
  void backward(const Order& order, std::int64_t microbatch) const {
    at::Tensor loss = at::zeros({});
    for (const std::int64_t t : order) loss = loss + (tensor(t) * share(rank, microbatch, t)).sum();
    loss.backward();
  }

  // The fold: the microbatches of a rank in order, then the ranks.
  at::Tensor wanted(std::int64_t num_microbatches, int num_ranks, int first_rank = 0) const {
    at::Tensor all = at::zeros({flat.layout().numel});
    for (const std::int64_t t : kForward) {
      float sum = 0;
      for (int r = first_rank; r < first_rank + num_ranks; ++r) {
        float own = 0;
        for (std::int64_t j = 0; j < num_microbatches; ++j) own += share(r, j, t);
        sum = r == first_rank ? own : sum + own;
      }
      const FlatTensor& place = flat.layout().tensors[static_cast<std::size_t>(t)];
      all.narrow(0, place.start, place.numel).fill_(sum);
    }
    return all;
  }
  // Of this rank alone, before anything is reduced.
  at::Tensor own(std::int64_t num_microbatches) const { return wanted(num_microbatches, 1, rank); }

  at::Tensor tensor(std::int64_t t) const {
    return flat.leaves()[static_cast<std::size_t>(t)].tensor;
  }
  const std::string& name(std::int64_t t) const {
    return flat.layout().tensors[static_cast<std::size_t>(t)].name;
  }
  std::vector<GradientBucket> plan() const {
    return plan_buckets(flat.layout(), /*capacity_bytes=*/4 * 112);
  }

  static std::vector<Unit> units() {
    const auto leaf = [](std::int64_t numel) { return at::ones({numel}).set_requires_grad(true); };
    return {{"embedding", {{"tokens", leaf(70)}, {"positions", leaf(20)}}},
            {"block0", {{"block0.weight", leaf(80)}, {"block0.bias", leaf(5)}}},
            {"block1", {{"block1.weight", leaf(300)}, {"block1.bias", leaf(7)}}},
            {"head",
             {{"head.gain", leaf(9)},
              {"head.fixed", at::ones({11})},
              {"head.weight", leaf(33)},
              {"head.bias", leaf(3)}}}};
  }

  int rank;
  FlatModel flat = FlatModel(units());
  FlatGradients grads = FlatGradients(flat);
};

}  // namespace ladder::step4
