// ZeRO-2: a unit's gradients leave as soon as they are complete, and what stays is this rank's slice
// of their sum.
//
//   arm(m)            the next m backward passes make up one step
//   … m backwards …   a hook moves each gradient out of .grad into its unit's buffer; when the unit
//                     is complete the buffer is reduce-scattered while autograd goes on; then the own
//                     slice is added to the gradient shard, and the buffer is gone
//   wait()            returns when the shard holds the sums of all m passes
//
// Every microbatch is reduced, as its full gradients have no place to wait for the next one: m times
// the bytes of step 5. The sum is ranks first, microbatches after: another order than in steps 3 to
// 5 if m > 1, and other last bits; that of step 0's --fold ranks-first.
//
// At most two units have a full gradient at any moment: the one that backward fills, and the one on
// its way. A unit that is complete waits for the one before it to arrive, then leaves; only then, or
// in wait(), is the buffer of the one before freed, even if its sum came earlier. So memory is a
// formula, not a matter of timing (Rajbhandari et al., arXiv 1910.02054, section 5.2). Of a tied
// embedding autograd itself keeps the head's part, [V, C], until the embedding's backward adds the
// other; the ledger counts that as activation.
//
// Collective: every rank constructs it with the same plan, and calls arm() and wait() in the same
// order. Units leave in the same order on all ranks: from the last to the first. Every hook also gives
// the transport a chance to move on.
//
// Lifetime: `comm` outlives the sharder. A model has one at a time: a parameter has one such hook.
//           Destroy it only after wait(), or after an error.
// Memory:   4 bytes per element of the plan's slices; during backward two neighbouring units, and
//           the transport's scratch of one. Should autograd finish units in another order, those
//           that wait for their turn are held as well.
// Throws:   CheckError naming rank and parameter, from wait() or backward(), if one has had no
//           gradient in a pass (it took no part in it) or one too many; for wait() without arm(),
//           and arm() without wait() or of no backward.
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
  // `leaves`: the model's own tensors, in the layout's order. Their .grad is undefined between passes.
  GradientSharder(const ShardPlan& plan, std::vector<NamedTensor> leaves, Communicator& comm);

  void arm(std::int64_t num_microbatches);
  void wait();

  const at::Tensor& grad_shard() const { return grad_shard_; }  // [plan.numel]
  void zero_grad() { grad_shard_.zero_(); }

 private:
  struct Unit {
    GradientBucket range;
    at::Tensor shard;  // this rank's slice, a view of grad_shard_
    std::vector<std::pair<std::int64_t, std::int64_t>> gaps;  // (start, numel): nobody's gradient
    std::size_t num_waiting = 0;  // tensors without a gradient in this pass
    at::Tensor full;              // [range.numel] from the first gradient until the unit leaves
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
  std::vector<Unit> units_;  // in the order in which they leave
  std::vector<Leaf> tensors_;
  std::int64_t num_microbatches_ = 0;  // 0: not armed
  std::int64_t num_started_ = 0;       // units, over all passes
  at::Tensor on_its_way_;              // the full gradient that is being reduced
  WorkPtr reduction_;
  GradientHooks hooks_;
};

}  // namespace ladder
