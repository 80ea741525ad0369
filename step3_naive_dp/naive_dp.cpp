#include "step3_naive_dp/naive_dp.hpp"

namespace ladder {

void broadcast_parameters(FlatModel& model, Communicator& comm, int root) {
  comm.broadcast(model.params(), root)->wait();
}

void all_reduce_gradients(FlatModel& model, Communicator& comm) {
  for (const NamedTensor& parameter : model.leaves()) {
    if (!parameter.tensor.requires_grad()) continue;
    comm.all_reduce(parameter.tensor.grad())->wait();
  }
}

}  // namespace ladder
