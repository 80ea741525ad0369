#include "common/train/step_sums.hpp"

#include <ATen/ops/empty.h>

#include "common/core/memory_ledger.hpp"

namespace ladder {

StepSums all_reduce_sum(const StepSums& own, Communicator& comm) {
  const MemoryScope scope(MemoryCategory::kCommunication);
  const at::Tensor sums = at::empty({2}, at::kDouble);
  auto* const values = sums.mutable_data_ptr<double>();
  values[0] = own.loss;
  values[1] = own.is_stop_requested ? 1 : 0;
  comm.all_reduce(sums)->wait();
  return {values[0], values[1] > 0};
}

}  // namespace ladder
