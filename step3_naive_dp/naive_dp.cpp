#include "step3_naive_dp/naive_dp.hpp"

#include "common/core/trace.hpp"

namespace ladder {

void broadcast_parameters(FlatModel& model, Communicator& comm, int root) {
  const Span span("parameters");
  comm.broadcast(model.params(), root)->wait();
}

void all_reduce_gradients(FlatGradients& grads, Communicator& comm) {
  for (const NamedTensor& parameter : grads.leaves()) {
    if (!parameter.tensor.requires_grad()) continue;
    const Span span(parameter.name);
    comm.all_reduce(parameter.tensor.grad())->wait();
  }
}

}  // namespace ladder
