// For tests and the judge: a model whose units are unpleasant to cut into slices.
//
// One element; less than a slice; more than one slice; a unit that nothing trains; a unit of which
// nothing is there; frozen tensors before, between and after others; a tensor that is used twice, as a tied
// embedding is.
#pragma once

#include <ATen/ops/zeros.h>

#include <utility>
#include <vector>

#include "common/comm/contract/rank_values.hpp"
#include "common/optim/flat_model.hpp"
#include "step5_zero1/shard_plan.hpp"

namespace ladder::step5 {

inline std::vector<Unit> hostile_units() {
  std::uint64_t seed = 1000;
  const auto leaf = [&seed](std::vector<std::int64_t> shape, bool is_trainable = true) {
    const at::Tensor values =
        values_of(0, c10::multiply_integers(shape), at::kFloat, seed++).view(shape);
    return values.set_requires_grad(is_trainable);
  };
  return {{"embedding", {{"wte", leaf({33, 7})}}},
          {"block",
           {{"block.weight", leaf({70, 70})},
            {"block.bias", leaf({1})},
            {"block.proj", leaf({16, 16})}}},
          {"frozen", {{"frozen.table", leaf({40, 30}, false)}}},
          {"empty", {}},
          {"head",
           {{"head.mask", leaf({3}, false)},
            {"head.gain", leaf({5})},
            {"head.fixed", leaf({9}, false)},
            {"head.shift", leaf({5})},
            {"head.rest", leaf({3}, false)}}}};
}

// Padded for so many ranks; a model of one process may be padded for many.
struct HostileModel {
  explicit HostileModel(int world_size) : flat(hostile_units(), shard_multiple(world_size)) {}

  // The gradients are values_of() many seeds, the same on all ranks.
  void backward() const {
    at::Tensor loss = at::zeros({});
    const auto use = [&](const at::Tensor& leaf, std::uint64_t seed) {
      loss = loss + (leaf.flatten() * values_of(0, leaf.numel(), at::kFloat, seed)).sum();
    };
    for (std::size_t i = 0; i < flat.leaves().size(); ++i) use(flat.leaves()[i].tensor, i);
    use(flat.leaves()[0].tensor, 50);
    loss.backward();
  }

  FlatModel flat;
  FlatGradients grads{flat};
};

}  // namespace ladder::step5
