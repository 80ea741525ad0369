// For tests and the judge: a model whose units are unpleasant to cut into slices.
//
// One element; less than a slice; more than one slice; a unit that nothing trains; a unit of which
// nothing is there; frozen tensors before, between and after others; a tensor that is used twice, as a tied
// embedding is. Its gradient on each rank is whatever values_of() says.
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

  // One microbatch of rank r.
  void backward(int rank, std::uint64_t seed) {
    at::Tensor loss = at::zeros({});
    const auto use = [&](const at::Tensor& leaf, std::uint64_t seed_of_use) {
      loss = loss + (leaf.flatten() * values_of(rank, leaf.numel(), at::kFloat, seed_of_use)).sum();
    };
    for (std::size_t i = 0; i < flat.leaves().size(); ++i) use(flat.leaves()[i].tensor, seed + i);
    use(flat.leaves()[0].tensor, seed + 50);
    loss.backward();
  }

  // What one process that plays all ranks ends with: each rank's microbatches in order, then the
  // ranks in order.
  void backward_of_all(int num_ranks, std::int64_t num_microbatches, std::uint64_t seed) {
    at::Tensor sum;
    for (int r = 0; r < num_ranks; ++r) {
      grads.zero();
      for (std::int64_t j = 0; j < num_microbatches; ++j) backward(r, seed_of(seed, j));
      sum = r == 0 ? grads.flat().clone() : sum + grads.flat();
    }
    grads.flat().copy_(sum);
  }
  static std::uint64_t seed_of(std::uint64_t seed, std::int64_t microbatch) {
    return seed + 100 * static_cast<std::uint64_t>(microbatch);
  }

  FlatModel flat;
  FlatGradients grads{flat};
};

}  // namespace ladder::step5
