// libtorch's Reducer, the engine inside DistributedDataParallel, as this step sets it up.
//
// It hangs a hook on every trainable leaf. When a leaf's gradient is ready, the hook copies it into
// the leaf's place in a bucket. When a bucket is full, and all before it are on their way, the comm
// hook is called with it. After the last one, still inside backward(), the results are copied back
// into the gradients. Copied: .grad stays the view of the flat buffer that it was.
//
// Switched off: the search for unused parameters (a gradient that never comes is an error), and
// gradients as views of the buckets (ours are views already, of a buffer that is aligned). DDP also
// sorts its buckets anew after the first step, by the order in which the gradients became ready,
// and tells all ranks by broadcast. Here they stay as planned.
//
// Local:    sends nothing itself; the comm hook does. Without one (see register_comm_hook) the
//           Reducer would multiply by 1 / world size, inexact for 3 ranks, and then sum.
// Memory:   the buckets, 4 bytes per trainable parameter, no padding, under the scope of who makes it.
// Lifetime: the model, and what `group` stands on, outlive this.
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

  // The next backward reduces; any other leaves each rank its own gradients. Called between the
  // forward and that backward.
  void expect_backward();

  // After that backward: have all buckets been reduced and copied back, and if not, which
  // parameters got no gradient?
  bool is_reduced() const { return !expect_autograd_hooks_; }
  std::vector<std::string> params_without_gradient() const;

 private:
  ReferenceReducer(const std::vector<NamedTensor>& leaves,
                   const c10::intrusive_ptr<c10d::ProcessGroup>& group);

  std::vector<std::string> names_;  // in the order of the Reducer's parameters
};

}  // namespace ladder
