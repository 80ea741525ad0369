// AdamW and SGD over flat buffers.
//
// AdamW (Loshchilov and Hutter, arXiv 1711.05101), where lr is the learning rate and t the number
// of the step, counted from 1:
//   p = p (1 − lr·weight_decay);   m = β1 m + (1−β1) g;   v = β2 v + (1−β2) g²
//   p = p − lr · (m / (1−β1ᵗ)) / (√(v / (1−β2ᵗ)) + eps)
// SGD, without momentum or state:   p = p (1 − lr·weight_decay) − lr·g
// Weight decay applies to tensors with two or more dimensions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "common/core/unit.hpp"
#include "common/optim/flat_layout.hpp"
#include "common/optim/flat_model.hpp"

namespace ladder {

enum class OptimizerKind { kAdamW, kSgd };

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
};

// A contiguous range of the flat buffer with one weight decay: neighboring tensors are updated in
// one call. Start and length are multiples of kTensorAlignment, so that the update of an element
// does not depend on where the range is cut.
struct UpdateRange {
  std::int64_t start = 0;
  std::int64_t numel = 0;
  bool has_decay = false;
};
std::vector<UpdateRange> plan_updates(const FlatLayout& layout);  // frozen tensors are left out

// A piece of the parameters with its gradients, and the position of its state in the optimizer's
// state tensors.
struct OptimizerSlice {
  at::Tensor params;  // [n], updated in place
  at::Tensor grads;   // [n]
  std::int64_t state_start = 0;
  bool has_decay = false;
};

class Optimizer {
 public:
  // Updates a whole model. Memory: AdamW allocates 8 bytes per element of the layout (m and v),
  // counted as optimizer; SGD none. Lifetime: the optimizer keeps the flat buffers alive.
  Optimizer(FlatModel& model, const FlatGradients& grads, const OptimizerOptions& options);
  // Updates only these slices, with state for state_numel elements. Each slice must start and end
  // at a multiple of kTensorAlignment.
  Optimizer(const std::vector<OptimizerSlice>& slices, std::int64_t state_numel,
            const OptimizerOptions& options);
  // Not copyable or movable: the fused kernel reads the step number from a member of this object.
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Updates the parameters from the gradients. Local; neither allocates tensor memory nor copies.
  void step(double learning_rate);

  // The steps taken so far, including those before a resume: t of the last step.
  std::int64_t num_steps() const { return num_steps_; }
  void set_num_steps(std::int64_t steps) { num_steps_ = steps; }

  // The state as flat tensors [state_numel]: "exp_avg" (m) and "exp_avg_sq" (v); empty for SGD.
  const std::vector<NamedTensor>& state() const { return state_; }
  // The state of a whole model with this layout, as views: "NAME.exp_avg" and "NAME.exp_avg_sq" for
  // each tensor.
  std::vector<NamedTensor> named_state(const FlatLayout& layout) const;

 private:
  void adamw_step(double learning_rate);
  void sgd_step(double learning_rate);

  // The ranges that one kernel call updates, cut once from all buffers.
  struct Group {
    double weight_decay = 0;
    std::vector<at::Tensor> params, grads, exp_avgs, exp_avg_sqs, steps;
  };

  OptimizerOptions options_;
  std::vector<NamedTensor> state_;
  std::vector<Group> groups_;
  std::int64_t num_steps_ = 0;
  float step_for_kernel_ = 0;  // the fused kernel reads t through views of this
};

}  // namespace ladder
