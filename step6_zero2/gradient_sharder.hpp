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
#include <string>
#include <utility>
#include <vector>

#include "common/comm/communicator.hpp"
#include "common/core/unit.hpp"
#include "step4_bucketed_ddp/gradient_hooks.hpp"
#include "step5_zero1/shard_plan.hpp"

namespace ladder {

class GradientSharder {
 public:
  // `leaves`: the model's own tensors, in the layout's order. Their .grad is undefined between
  // passes.
  GradientSharder(const ShardPlan& plan, std::vector<NamedTensor> leaves, Communicator& comm);

  void arm(std::int64_t num_microbatches);
  void wait();

  const at::Tensor& grad_shard() const { return grad_shard_; }  // [plan.numel]
  void zero_grad() { grad_shard_.zero_(); }

 private:
  struct Unit {
    GradientBucket range;
    at::Tensor shard;  // this rank's slice, a view of grad_shard_
    std::vector<std::pair<std::int64_t, std::int64_t>> gaps;  // (start, numel) of no tensor
    std::size_t num_waiting = 0;  // tensors without a gradient in this pass
    at::Tensor full;              // [range.numel] from the first gradient until the unit is sent
  };
  struct Leaf {
    std::size_t unit = 0;
    std::int64_t start = 0;     // in its unit
    bool has_gradient = false;  // in this pass
  };
  void on_gradient(std::size_t tensor);
  void start_complete_units();
  void finish_unit_on_its_way();
  std::int64_t num_units() const { return static_cast<std::int64_t>(units_.size()); }
  std::string describe_missing() const;

  std::vector<NamedTensor> leaves_;
  Communicator& comm_;
  at::Tensor grad_shard_;
  std::vector<Unit> units_;  // in the order in which they are sent
  std::vector<Leaf> tensors_;
  std::int64_t num_microbatches_ = 0;  // 0: not armed
  std::int64_t num_started_ = 0;       // units sent so far, over all passes
  at::Tensor on_its_way_;              // the full gradient that is being reduced
  WorkPtr reduction_;
  GradientHooks hooks_;
};

}  // namespace ladder
