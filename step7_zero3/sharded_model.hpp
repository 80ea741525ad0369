// ZeRO-3: every rank holds 1/N of the model, and no rank ever holds all of it.
//
//   forward    for each layer, from the first to the last:  unshard, compute, reshard
//   backward   for each layer, from the last to the first:  unshard, compute, reshard
//
// The units of the next `prefetch` layers are gathered ahead, while this layer computes. Autograd
// runs the backward; a hook on each layer's output fires when the gradient arrives there, just
// before the layer's own backward, and unshards its unit. Backward need not gather what forward
// leaves whole: the last layer, whose backward follows right after its forward, and a unit that
// another layer reads (a tied embedding), which is kept from its own forward until that layer's
// backward. The first layer looks up tokens; its backward reads no parameter, so nothing is
// gathered for it. A forward without gradients, such as an evaluation, also keeps the unit that
// another layer reads, but at its end nothing is whole. Any forward may come between another one
// and its backward: it drops all units, and backward gathers whatever it needs again, a tied
// embedding too.
//
// It leaves gradients to a GradientSharder (step 6) on leaves(), which takes them away unit by unit
// (Rajbhandari et al., arXiv 1910.02054, section 5.3; PyTorch FSDP, Zhao et al., VLDB 2023,
// section 3).
//
// Collective: forward(), and the backward of what it returns. Every rank calls them equally often,
//             in the same order. The constructor is local: a tensor's initial values depend only on
//             seed and name, so all ranks build the same model.
// Lifetime:   `comm` outlives this, and this outlives the graph of a backward.
// Memory:     a parameter per element of the plan's slices, plus the units that are whole: this
//             layer's, those gathered ahead, and those kept (peak_whole_numel() of the
//             cost card). If the embedding is frozen, no gradient arrives there, and the first
//             block stays whole until the next forward.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "common/comm/communicator.hpp"
#include "common/core/device.hpp"
#include "common/model/model.hpp"
#include "step5_zero1/shard_plan.hpp"

namespace ladder {

class ShardedModel {
 public:
  // Builds one unit at a time and keeps this rank's slice of it. Calls `build` twice, the first
  // time on the meta device, for the plan. Parameters live on `device`. Throws CheckError naming a
  // prefetch below 0.
  ShardedModel(const ModelBuilder& build, int prefetch, Communicator& comm, Device device = {});
  ~ShardedModel();

  at::Tensor forward(const at::Tensor& tokens);  // [B, T] int64 -> logits [B, T, V]

  const ShardPlan& plan() const;
  const at::Tensor& param_shard() const;  // [plan().numel]
  const std::vector<NamedTensor>& leaves() const;
  const VocabParts& parts() const;  // as a Model's

 private:
  struct State;  // what it knows, and what it does with it: sharded_model.cpp
  std::unique_ptr<State> state_;
};

inline const VocabParts& vocab_parts_of(const ShardedModel& model) {
  return model.parts();
}

}  // namespace ladder
