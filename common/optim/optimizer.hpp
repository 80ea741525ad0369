// AdamW and SGD over flat buffers.
//
// AdamW (Loshchilov and Hutter, arXiv 1711.05101), where lr is the learning rate and t the number
// of the step, counted from 1:
//   p = p (1 − lr·weight_decay);   m = β1 m + (1−β1) g;   v = β2 v + (1−β2) g²
//   p = p − lr · (m / (1−β1ᵗ)) / (√(v / (1−β2ᵗ)) + eps)
// SGD, without momentum or state:   p = p (1 − lr·weight_decay) − lr·g
// Weight decay applies to tensors with two or more dimensions.
//
// All of this is computed in fp32. Parameters in 16 bits have masters: copies in fp32, which step()
// updates and then rounds into the parameters. A change that is too small to be seen in 16 bits is
// not lost: masters add it up until it is large enough.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/core/unit.hpp"
#include "common/optim/flat_layout.hpp"
#include "common/optim/flat_model.hpp"
#include "common/optim/options.hpp"

namespace ladder {

// Start and length of what one call updates are multiples of this many elements, so that the update
// of an element does not depend on where a buffer is cut.
inline constexpr std::int64_t kUpdateAlignment = 16;

// A contiguous range of the flat buffer with one weight decay: neighboring tensors are updated in
// one call. Start and length are multiples of the layout's alignment, and so of kUpdateAlignment.
// If parameters have 16 bits, each tensor is a range of its own: stochastic rounding goes by
// tensors.
struct UpdateRange {
  std::int64_t start = 0;
  std::int64_t numel = 0;
  bool has_decay = false;
  std::string tensor = {};  // the first one
};
std::vector<UpdateRange> plan_updates(const FlatLayout& layout);  // frozen tensors are left out

// A piece of the parameters with its gradients, and the position of its state in the optimizer's
// state tensors.
struct OptimizerSlice {
  at::Tensor params;  // [n], updated in place; fp32, bf16 or fp16
  at::Tensor grads;   // [n], fp32 or of the parameters' type
  std::int64_t state_start = 0;
  bool has_decay = false;
  std::string tensor = {};        // for stochastic rounding: the tensor's name,
  std::int64_t tensor_start = 0;  // and where in it the slice starts
};

class Optimizer {
 public:
  // Updates a whole model. Memory, counted as optimizer: AdamW allocates 8 bytes per element of the
  // layout (m and v), SGD none; masters take 4 more. What has to be widened to fp32 for a moment
  // goes through scratch of at most 4 MiB each, counted as other. Lifetime: the optimizer keeps the
  // flat buffers alive.
  Optimizer(FlatModel& model, const FlatGradients& grads, const OptimizerOptions& options);
  // Updates only these slices, with state for state_numel elements: of a rank's whole shard, even
  // if none of it is to be updated. The layout says of which precision it is, and on which device.
  // Each slice must start and end at a multiple of kUpdateAlignment.
  Optimizer(const std::vector<OptimizerSlice>& slices, std::int64_t state_numel,
            const FlatLayout& layout, const OptimizerOptions& options);
  // Not copyable or movable: the fused kernel reads the step number from a member of this object.
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Updates the parameters from the gradients times grad_factor, a product in fp32 (norm.hpp).
  // Local; allocates nothing but, for a factor other than 1, a tensor of one number. Gradients in
  // 16 bits stay as they are; in fp32 they may have been multiplied in place.
  void step(double learning_rate, double grad_factor = 1);

  // The steps taken so far, including those before a resume: t of the last step.
  std::int64_t num_steps() const { return num_steps_; }
  void set_num_steps(std::int64_t steps) { num_steps_ = steps; }

  // The state as flat tensors [state_numel]: "exp_avg" (m) and "exp_avg_sq" (v); empty for SGD.
  const std::vector<NamedTensor>& state() const { return state_; }
  // The state of a whole model with this layout, as views: "NAME.exp_avg" and "NAME.exp_avg_sq" for
  // each tensor.
  std::vector<NamedTensor> named_state(const FlatLayout& layout) const;

  // The parameters in fp32 [state_numel], placed like the state; undefined if there are none. A
  // frozen tensor has no master. They take their values from the parameters in the first step, or
  // when start_masters() is called before it. Code that writes to them calls copy_masters_to_params()
  // afterwards.
  const at::Tensor& masters() const { return masters_; }
  void start_masters();
  void copy_masters_to_params();  // into the parameters, to nearest
  // What this optimizer really updates, of the model that it was made for: its masters, or, if
  // there are none, the parameters themselves.
  FlatModel updated_model(const FlatModel& model) const;

 private:
  // What one kernel call updates, all of it fp32, cut once from all buffers.
  struct Group {
    double weight_decay = 0;
    std::vector<at::Tensor> params, grads, exp_avgs, exp_avg_sqs, steps;
    // Where `params` are masters or scratch: what the result is rounded to. Where they, or `grads`,
    // are scratch: what is widened into them before the call. Otherwise empty.
    std::vector<at::Tensor> narrow_params, narrow_grads;
    std::string tensor;  // of the only piece, if there is scratch
    std::int64_t tensor_start = 0;
  };
  void widen(const Group& group, double grad_factor);
  void narrow(const Group& group);
  void add(Group& group, const OptimizerSlice& slice);
  void add_in_pieces(const OptimizerSlice& slice);
  void adamw_step(const Group& group, double learning_rate, double grad_factor);
  void sgd_step(const Group& group, double learning_rate);

  OptimizerOptions options_;
  std::vector<NamedTensor> state_;
  at::Tensor masters_;
  bool have_masters_started_ = false;
  bool has_own_kernel_ = false;          // the GPU's: it widens gradients and rounds masters itself
  at::Tensor wide_params_, wide_grads_;  // scratch
  std::vector<Group> groups_;
  std::int64_t num_steps_ = 0;
  float step_for_kernel_ = 0;  // the fused kernel reads t through views of this
};

}  // namespace ladder
