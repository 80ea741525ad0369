// AdamW and SGD over flat buffers.
//
// AdamW (Loshchilov and Hutter, arXiv 1711.05101), with lr the learning rate and t the number of
// this step from 1:
//   p = p (1 − lr·weight_decay);   m = β1 m + (1−β1) g;   v = β2 v + (1−β2) g²
//   p = p − lr · (m / (1−β1ᵗ)) / (√(v / (1−β2ᵗ)) + eps)
// SGD, without momentum or state:   p = p (1 − lr·weight_decay) − lr·g
// Weight decay applies to tensors of two dimensions and more.
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

// A run of the flat buffer with one weight decay: neighbouring tensors are updated in one call.
// Start and length are multiples of kTensorAlignment, which keeps the update of an element
// independent of where the run is cut.
struct UpdateRange {
  std::int64_t start = 0;
  std::int64_t numel = 0;
  bool has_decay = false;
};
std::vector<UpdateRange> plan_updates(const FlatLayout& layout);  // frozen tensors are left out

// A piece of the parameters with its gradients, and where its state begins among the elements that
// an optimizer keeps state for.
struct OptimizerSlice {
  at::Tensor params;  // [n], updated in place
  at::Tensor grads;   // [n]
  std::int64_t state_start = 0;
  bool has_decay = false;
};

class Optimizer {
 public:
  // Of a whole model. Memory: AdamW 8 bytes per element of the layout (m and v), SGD none; counted
  // as optimizer. Lifetime: the flat buffers are kept alive.
  Optimizer(FlatModel& model, const FlatGradients& grads, const OptimizerOptions& options);
  // Of these slices alone, with state for state_numel elements. Each starts and ends on a multiple
  // of kTensorAlignment.
  Optimizer(const std::vector<OptimizerSlice>& slices, std::int64_t state_numel,
            const OptimizerOptions& options);
  // The fused kernel reads the number of the step from a member of this object: it stays where it is.
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Updates the parameters from the gradients. Local; no allocation of tensor memory, no copy.
  void step(double learning_rate);

  // Steps taken, over all runs: t of the last step.
  std::int64_t num_steps() const { return num_steps_; }
  void set_num_steps(std::int64_t steps) { num_steps_ = steps; }

  // The state, one flat tensor [state_numel] each: "exp_avg" (m) and "exp_avg_sq" (v); none for
  // SGD.
  const std::vector<NamedTensor>& state() const { return state_; }
  // Of a whole model of this layout, as views: "NAME.exp_avg" and "NAME.exp_avg_sq" for each tensor.
  std::vector<NamedTensor> named_state(const FlatLayout& layout) const;

 private:
  void adamw_step(double learning_rate);
  void sgd_step(double learning_rate);

  // The same runs of all buffers, cut once: what one kernel call updates.
  struct Group {
    double weight_decay = 0;
    std::vector<at::Tensor> params, grads, exp_avgs, exp_avg_sqs, steps;
  };

  OptimizerOptions options_;
  std::vector<NamedTensor> state_;
  std::vector<Group> groups_;
  std::int64_t num_steps_ = 0;
  float step_for_kernel_ = 0;  // the fused kernel reads t from tensors; theirs are views of this
};

}  // namespace ladder
