// ZeRO-3: a GPT of which every rank holds 1/N, and which is whole nowhere, at no time.
//
//   forward    for each unit, from the first to the last:  unshard, compute, reshard
//   backward   for each unit, from the last to the first:  unshard, compute, reshard
//
// The next `prefetch` units are gathered ahead, while this one computes. Backward is autograd's own; a
// hook on each unit's output is called when the gradient arrives there, just before the unit's
// backward runs, and makes it whole again. What forward leaves whole, backward need not gather: the
// head, whose backward comes right after its forward; a tied embedding, whose tokens the head uses,
// is kept from its forward to the head's backward. The backward of an embedding reads no parameter:
// it is not gathered for it. Another forward, as for an evaluation, may come between a forward and
// its backward: it drops all units, and backward gathers again what it needs, a tied embedding too.
//
// Gradients are not its concern: a GradientSharder (step 6) on leaves() takes them away, unit by
// unit (Rajbhandari et al., arXiv 1910.02054, section 5.3; PyTorch FSDP, Zhao et al., VLDB 2023,
// section 3).
//
// Collective: forward(), loss_sum(), and the backward of what they return. Every rank calls them
//             equally often, in the same order. The constructor is local: a tensor's start depends
//             on seed and name alone, so all ranks agree on the whole.
// Lifetime:   `comm` outlives this, and this the graph of a backward.
// Memory:     4 bytes per element of the plan's slices, and the units that are whole: this one, those
//             gathered ahead, and those kept (peak.hpp). If the embedding is frozen no gradient
//             arrives there, and the first block stays whole until the next forward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "common/comm/communicator.hpp"
#include "common/model/gpt.hpp"
#include "step5_zero1/shard_plan.hpp"
#include "step7_zero3/sharded_units.hpp"

namespace ladder {

using PrepareUnit = std::function<void(const Unit& unit)>;

class ShardedGpt {
 public:
  // Makes one unit at a time, as its start, and keeps this rank's slice of it. `prepare` sees each unit
  // before that, and may freeze its parameters (requires_grad false); it is called twice, first with a
  // unit that has no values, for the plan. Throws CheckError for a prefetch below 0.
  ShardedGpt(const GptOptions& options, std::uint64_t seed, int prefetch, Communicator& comm,
             const PrepareUnit& prepare = {});

  at::Tensor forward(const at::Tensor& tokens);  // [B, T] int64 -> logits [B, T, V]
  // As Gpt::loss_sum(): [B, T], [B, T] -> [].
  at::Tensor loss_sum(const at::Tensor& tokens, const at::Tensor& targets);

  const GptOptions& options() const { return model_.options(); }
  const ShardPlan& plan() const { return plan_; }
  const at::Tensor& param_shard() const { return units_.param_shard(); }  // [plan().numel]
  const std::vector<NamedTensor>& leaves() const { return units_.leaves(); }

 private:
  // Units: 0 is the embedding, then the blocks, last_ the head.
  void begin_forward(std::size_t unit);   // whole, and those after it on their way
  void end_forward(std::size_t unit);     // gone, unless it is kept
  void begin_backward(std::size_t unit);  // the gradient has arrived at its output
  void on_gradient_of_output(const at::Tensor& output, std::size_t unit);
  bool is_kept(std::size_t unit) const;  // from forward to backward

  ShardPlan plan_;
  ShardedUnits units_;
  Gpt model_;  // its tensors have memory while their unit is whole
  std::size_t last_;
  std::size_t prefetch_;
};

}  // namespace ladder
