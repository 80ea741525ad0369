// For the tests: the same GPT in one piece, on one process, fed with what all ranks
// are fed with. What a sharded one must equal, to the bit.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/core/seed.hpp"
#include "common/model/build_layers.hpp"
#include "step0_single_gpu/objective.hpp"
#include "step5_zero1/shard_plan.hpp"

namespace ladder::step7 {

// What is in .grad, as it lies in a flat buffer, 0 where there is none; .grad is gone afterwards.
inline at::Tensor take_gradient(const std::vector<NamedTensor>& leaves, const FlatLayout& layout) {
  const at::Tensor flat = at::zeros({layout.numel});
  auto place = layout.tensors.begin();
  for (const NamedTensor& leaf : leaves) {
    if (leaf.tensor.grad().defined())
      flat.narrow(0, place->start, place->numel).copy_(leaf.tensor.grad().flatten());
    leaf.tensor.mutable_grad().reset();
    ++place;
  }
  return flat;
}

class WholeModel {
 public:
  static constexpr std::int64_t kRows = 2;
  static constexpr std::int64_t kMostTokens = 12;  // in a row: few are quick

  WholeModel(const ModelOptions& options, std::uint64_t seed)
      : options_(options), model_(build_layers(options, seed)) {}

  // [B, T], others on each rank and in each microbatch.
  at::Tensor tokens(std::int64_t rank, std::int64_t microbatch) const {
    const at::Tensor ids = at::empty({kRows, std::min(options_.context, kMostTokens)}, at::kLong);
    auto* const data = ids.mutable_data_ptr<std::int64_t>();
    Random random(derive_seed(static_cast<std::uint64_t>(rank * 100 + microbatch), "tokens"));
    for (std::int64_t i = 0; i < ids.numel(); ++i) data[i] = random.below(options_.vocab_size);
    return ids;
  }

  at::Tensor logits(const at::Tensor& tokens) const {
    const at::NoGradGuard no_grad;
    return model_.forward(tokens);
  }

  // The target of each token is the next one, that of a row's last one its first.
  static at::Tensor targets(const at::Tensor& tokens) { return tokens.roll(-1, 1); }

  // The mean loss of these logits [B, T, V].
  at::Tensor loss(const at::Tensor& logits, const at::Tensor& tokens) const {
    return cross_entropy_sum(logits, targets(tokens)) / static_cast<double>(tokens.numel());
  }

  // What this rank's slices must hold after a step: ranks first, microbatches after (step 6).
  at::Tensor grad_shard(const ShardPlan& plan, std::int64_t num_microbatches) const {
    const at::Tensor sum = at::zeros({plan.layout.numel});
    for (std::int64_t j = 0; j < num_microbatches; ++j) {
      at::Tensor of_ranks = gradient(plan.layout, 0, j);
      for (int rank = 1; rank < plan.world_size; ++rank)
        of_ranks.add_(gradient(plan.layout, rank, j));
      sum.add_(of_ranks);
    }
    return at::cat(plan.slices_of_full(sum));
  }

  // Of one microbatch of one rank, as it lies in a flat buffer; 0 where nothing is trained.
  at::Tensor gradient(const FlatLayout& layout, std::int64_t rank, std::int64_t microbatch) const {
    const at::Tensor ids = tokens(rank, microbatch);
    loss(model_.forward(ids), ids).backward();
    return take_gradient(leaves(), layout);
  }

  std::vector<NamedTensor> leaves() const {
    std::vector<NamedTensor> all;
    for (const Unit& unit : model_.units())
      all.insert(all.end(), unit.tensors.begin(), unit.tensors.end());
    return all;
  }
  const Model& model() const { return model_; }
  const ModelOptions& options() const { return options_; }

 private:
  ModelOptions options_;
  Model model_;
};

}  // namespace ladder::step7
