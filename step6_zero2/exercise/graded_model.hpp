// For the grader: a model whose gradients every rank can work out in its head.
//
// Five units that are trained, no two of one length: a rank that starts the wrong one sends the
// wrong number of elements. Each has a short tensor and a long one, with padding behind both; one
// has a frozen tensor between them. A sixth unit is frozen. The loss is linear in every parameter,
// and autograd visits the units in any order asked for.
#pragma once

#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "common/core/check.hpp"
#include "common/optim/flat_model.hpp"
#include "step5_zero1/shard_plan.hpp"

namespace ladder::step6 {

using Order = std::vector<std::size_t>;
inline const Order kForward = {0, 1, 2, 3, 4};  // backward is in the plan's order
inline const Order kMixed = {3, 1, 4, 0, 2};

struct GradedModel {
  static constexpr int kNumUnits = 5;  // that are trained
  static constexpr std::int64_t kShortNumel = 10;

  GradedModel(int the_rank, int the_size)
      : rank(the_rank),
        size(the_size),
        flat(units(the_size), shard_multiple(the_size)),
        plan(plan_shards(flat.layout(), the_size, the_rank)),
        buckets(plan_unit_buckets(flat.layout())) {}

  // What rank r's microbatch j gives to each element: in a short tensor a number that one can add
  // up in one's head, in a long one numbers whose sum depends on the order.
  static float share(std::int64_t r, std::int64_t j, std::size_t tensor, bool is_short) {
    if (is_short) return static_cast<float>((r + 1) * (j + 1));
    const float sign = (r + j) % 2 == 0 ? 1.0F : -1.0F;
    return sign * (1.0F + 0.1F * static_cast<float>(tensor)) *
           std::pow(37.0F, static_cast<float>((r * 3 + j * 2) % 5) - 2.0F);
  }
  float share(std::int64_t r, std::int64_t j, std::size_t tensor) const {
    return share(r, j, tensor, place(tensor).numel == kShortNumel);
  }

  // Backward goes from the last unit of `order` to the first, and in a unit from its last tensor.
  // Without one tensor, if it is named.
  void backward(const Order& order, std::int64_t microbatch,
                const std::string& without = "") const {
    at::Tensor loss = at::zeros({});
    for (const std::size_t unit : order) {
      for (const std::size_t t : tensors_of(unit)) {
        if (place(t).name != without) loss = loss + (leaf(t) * share(rank, microbatch, t)).sum();
      }
    }
    loss.backward();
  }

  // This rank's slices of the fold: in each microbatch the ranks in order, then the microbatches.
  at::Tensor wanted(std::int64_t num_microbatches) const {
    const at::Tensor full = at::zeros({plan.layout.numel});
    for (std::size_t t = 0; t < plan.layout.tensors.size(); ++t) {
      if (!place(t).is_trainable) continue;
      float sum = 0;
      for (std::int64_t j = 0; j < num_microbatches; ++j) {
        float of_ranks = share(0, j, t);
        for (int r = 1; r < size; ++r) of_ranks += share(r, j, t);
        sum += of_ranks;
      }
      full.narrow(0, place(t).start, place(t).numel).fill_(sum);
    }
    return at::cat(plan.slices_of_full(full));
  }

  // Of the trained units, counted from the first; in a unit the tensors that are trained.
  std::vector<std::size_t> tensors_of(std::size_t unit) const {
    const std::vector<std::int64_t>& from_the_last = buckets[kNumUnits - 1 - unit].tensors;
    return {from_the_last.rbegin(), from_the_last.rend()};
  }
  at::Tensor leaf(std::size_t t) const { return flat.leaves()[t].tensor; }
  const FlatTensor& place(std::size_t t) const { return flat.layout().tensors[t]; }

  static std::vector<Unit> units(int size) {
    const auto ones = [](std::int64_t numel) { return at::ones({numel}).set_requires_grad(true); };
    std::vector<Unit> list;
    for (std::int64_t u = 0; u < kNumUnits; ++u) {
      Unit unit = {concat("unit", u), {{concat("unit", u, ".short"), ones(kShortNumel)}}};
      if (u == 1) unit.tensors.push_back({"unit1.fixed", at::ones({30})});
      unit.tensors.push_back(
          {concat("unit", u, ".long"), ones((u + 1) * shard_multiple(size) - 50)});
      list.push_back(unit);
      if (u == 2) list.push_back({"ice", {{"ice.rock", at::ones({40})}}});
    }
    return list;
  }

  int rank;
  int size;
  FlatModel flat;
  ShardPlan plan;
  std::vector<GradientBucket> buckets;  // in the order in which they leave
};

}  // namespace ladder::step6
