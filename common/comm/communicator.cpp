#include "common/comm/communicator.hpp"

#include <ATen/ops/empty.h>

#include "common/core/memory_ledger.hpp"

namespace ladder {

double all_reduce_sum(double value, Communicator& comm) {
  const MemoryScope scope(MemoryCategory::kCommunication);
  const at::Tensor sum = at::empty({1}, at::kDouble);
  double* const number = sum.mutable_data_ptr<double>();
  *number = value;
  comm.all_reduce(sum)->wait();
  return *number;
}

}  // namespace ladder
