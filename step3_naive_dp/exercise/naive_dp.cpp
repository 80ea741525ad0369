// Exercise of step 3: data parallelism in two functions.
//
// Write them as step3_naive_dp/naive_dp.hpp describes them, then run:
//   ./ladder exercise step3_naive_dp
// The call starts a collective, wait() completes it:  comm.all_reduce(tensor)->wait();
#include "step3_naive_dp/naive_dp.hpp"

#include "common/core/check.hpp"

namespace ladder {

void broadcast_parameters(FlatModel& model, Communicator& comm, int root) {
  // model.leaves() are the model's tensors; all of them are views of the flat buffer
  // model.params(). Must the frozen ones be sent too?
  static_cast<void>(model);
  static_cast<void>(comm);
  static_cast<void>(root);
  not_implemented("step3_naive_dp: broadcast_parameters()");
}

void all_reduce_gradients(FlatGradients& grads, Communicator& comm) {
  // For each NamedTensor in grads.leaves(), tensor.requires_grad() is false if it is frozen, and
  // tensor.grad() is the gradient: zeros if this rank's backward did not reach it. What would
  // happen if one rank skipped such a tensor? The loss was already divided by the number of all
  // ranks' targets: what else must happen to the sum?
  static_cast<void>(grads);
  static_cast<void>(comm);
  not_implemented("step3_naive_dp: all_reduce_gradients()");
}

}  // namespace ladder
