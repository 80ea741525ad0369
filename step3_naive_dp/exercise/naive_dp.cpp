// Exercise of step 3: data parallelism in two functions.
//
// Write them as step3_naive_dp/naive_dp.hpp describes them, then:
//   ./ladder exercise step3_naive_dp
// A collective starts with the call and is done after wait():  comm.all_reduce(tensor)->wait();
#include "step3_naive_dp/naive_dp.hpp"

#include "common/core/check.hpp"

namespace ladder {

void broadcast_parameters(FlatModel& model, Communicator& comm, int root) {
  // model.leaves() are the model's tensors, and model.params() is the flat buffer that all of them
  // are views of. Do the frozen ones have to be sent too?
  static_cast<void>(model);
  static_cast<void>(comm);
  static_cast<void>(root);
  not_implemented("step3_naive_dp: broadcast_parameters()");
}

void all_reduce_gradients(FlatGradients& grads, Communicator& comm) {
  // For each NamedTensor in grads.leaves(): tensor.requires_grad() is false for a frozen one, and
  // tensor.grad() is the gradient, zeros if this rank's backward never came by. What would happen
  // if one rank left that one out? The loss was divided by the number of all ranks' targets: what
  // is left to do with the sum?
  static_cast<void>(grads);
  static_cast<void>(comm);
  not_implemented("step3_naive_dp: all_reduce_gradients()");
}

}  // namespace ladder
