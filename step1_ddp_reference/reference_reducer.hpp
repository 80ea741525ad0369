// libtorch's Reducer, the engine inside DistributedDataParallel, as this step sets it up.
//
// It sets a hook on every trainable leaf. When a leaf's gradient is ready, the hook copies it into
// the leaf's place in a bucket. When a bucket is full and all earlier ones have been sent, the
// Reducer calls the comm hook, a c10d::CommHookInterface, with it. After the last bucket, still
// inside backward(), it copies the results back into the gradients, so .grad stays the same view.
//
// Switched off: the search for unused parameters (a missing gradient is an error here), and
// gradients as views of the buckets (ours already are views, of an aligned buffer). DDP also
// rebuilds its buckets after the first step, in the order in which the gradients became ready, and
// broadcasts the new plan. Here the buckets stay as planned.
//
// Local:    sends nothing itself; the comm hook does. Without one (see register_comm_hook) the
//           Reducer would multiply by 1 / world size, inexact for 3 ranks, and then sum.
// Memory:   the buckets: 4 bytes per trainable parameter, no padding, in the caller's MemoryScope.
// Lifetime: the model, and the Communicator behind `group`, outlive this.
#pragma once

#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <string>
#include <vector>

#include "common/optim/flat_model.hpp"

namespace ladder {

class ReferenceReducer : public c10d::Reducer {
 public:
  // Throws CheckError if no parameter is trainable.
  ReferenceReducer(const FlatModel& model, const c10::intrusive_ptr<c10d::ProcessGroup>& group);

  // Makes the next backward reduce; any other backward leaves each rank its own gradients. Call it
  // between the forward and that backward.
  void expect_backward();

  // After that backward: whether all buckets have been reduced and copied back, and if not, which
  // parameters received no gradient.
  bool is_reduced() const { return !expect_autograd_hooks_; }
  std::vector<std::string> params_without_gradient() const;

 private:
  ReferenceReducer(const std::vector<NamedTensor>& leaves,
                   const c10::intrusive_ptr<c10d::ProcessGroup>& group);

  std::vector<std::string> names_;  // in the order of the Reducer's parameters
};

}  // namespace ladder
