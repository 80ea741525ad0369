#include "common/comm/communicator.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "common/core/memory_ledger.hpp"
#include "common/core/trace.hpp"

namespace ladder {

void all_reduce_sum(std::span<double> values, Communicator& comm, CallSite where) {
  const MemoryScope scope(MemoryCategory::kCommunication);
  const Span span("sum of numbers");
  const at::Tensor sums = at::empty({static_cast<std::int64_t>(values.size())}, at::kDouble);
  double* const data = sums.mutable_data_ptr<double>();
  std::copy(values.begin(), values.end(), data);
  comm.all_reduce(sums, where)->wait();
  std::copy_n(data, values.size(), values.begin());
}

double all_reduce_sum(double value, Communicator& comm, CallSite where) {
  all_reduce_sum(std::span(&value, 1), comm, where);
  return value;
}

}  // namespace ladder
