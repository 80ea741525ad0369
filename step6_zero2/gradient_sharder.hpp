// ZeRO-2: a unit's gradients are sent as soon as they are complete, and each rank keeps only its
// slice of their sum.
//
//   arm(m)            the next m backward passes make up one step
//   … m backwards …   a hook moves each gradient out of .grad into its unit's buffer; once the unit
//                     is complete, the buffer is reduce-scattered while autograd continues; then
//                     this rank's slice is added to the gradient shard, and the buffer is freed
//   wait()            returns when the sums of all m passes have been added to the shard
//
// Every microbatch is reduced, because no rank has room to keep its full gradients until the next
// one: m times the bytes of step 5. Sums run over ranks first and then over microbatches. If m > 1,
// the last bits differ from those of steps 3 to 5, unless sums are exact.
//
// At most two units have a full gradient at any moment: the one that backward is filling, and the
// one in flight. A complete unit waits until the one before it has been reduced, and is then sent.
// The earlier buffer is freed at that moment, or in wait(), even if its sum arrived before. So
// memory follows a formula and does not depend on timing (Rajbhandari et al., arXiv 1910.02054,
// section 5.2). For a tied embedding, autograd itself keeps the head's part, [V, C], until the
// embedding's backward adds the other; the ledger counts that as activation.
//
// Collective: every rank constructs it with the same plan, and calls arm() and wait() in the same
// order. All ranks send the units in the same order, from last to first. Every hook also lets the
// transport make progress.
//
// Lifetime: `comm` outlives the sharder. A parameter can have only one such hook, so a model has
//           one sharder at a time. Destroy it only after wait(), or after an error.
// Memory:   a gradient per element of the plan's slices; during backward, two neighboring units and
//           the transport's scratch for one. If autograd finishes units in another order, the units
//           that wait for their turn are held as well.
// Throws:   CheckError naming rank and parameter, from wait() or backward(), if one received no
//           gradient in a pass (it took no part in it) or one too many; also for wait() without
//           arm(), for a second arm() before wait(), and for arm() below 1.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/comm/communicator.hpp"
#include "common/core/unit.hpp"
#include "step5_zero1/shard_plan.hpp"

namespace ladder {

class GradientSharder {
 public:
  // `leaves`: the model's own tensors, in the layout's order. Their .grad is undefined between
  // passes.
  GradientSharder(const ShardPlan& plan, std::vector<NamedTensor> leaves, Communicator& comm);
  ~GradientSharder();

  void arm(std::int64_t num_microbatches);
  void wait();

  const at::Tensor& grad_shard() const;  // [plan.numel]
  void zero_grad() { grad_shard().zero_(); }

 private:
  struct State;  // what it knows, and what it does with it: gradient_sharder.cpp
  std::unique_ptr<State> state_;
};

}  // namespace ladder
