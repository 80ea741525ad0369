// What an operation on a tensor sends (traffic_theory.hpp).
#include "common/comm/operation.hpp"
#include "common/comm/traffic_theory.hpp"

namespace ladder {

Sent sent_by(const Operation& operation, int world_size, int rank, const Machines& machines) {
  const at::Tensor& tensor = operation.tensor;
  const bool has_tensor = tensor.defined();
  return sent_by(operation.kind, has_tensor ? tensor.numel() : 0,
                 has_tensor ? tensor.element_size() : 0, world_size, rank, operation.peer,
                 machines);
}

Traffic traffic_of(const Operation& operation, int world_size, int rank, const Machines& machines) {
  return sent_by(operation, world_size, rank, machines).traffic;
}

}  // namespace ladder
