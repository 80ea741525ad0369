// Judges the all-reduce on small tensors, over messages that no transport buffers. There is no
// training: the trainers use the all-reduces of the transports.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "common/comm/rank_order_fold.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/testing/examination.hpp"
#include "common/testing/judge_main.hpp"
#include "step1_ddp_reference/collectives/all_reduce_from_messages.hpp"
#include "step1_ddp_reference/collectives/exercise/unbuffered_communicator.hpp"

namespace ladder {
namespace collectives {
namespace {

// Of different magnitudes, so that each order of additions has bits of its own.
at::Tensor values_of(int rank, std::int64_t numel, at::ScalarType dtype) {
  return at::arange(1, numel + 1, at::kDouble)
      .mul_(0.7 + rank)
      .sin_()
      .mul_(std::pow(10.0, rank % 4))
      .to(dtype);
}

// All but the messages that the judge itself holds.
std::int64_t peak_of_answer() {
  const MemoryReading reading = read_memory();
  std::int64_t peak = 0;
  for (int i = 0; i < kNumMemoryCategories; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    if (category != MemoryCategory::kOther) peak += reading.peak(category);
  }
  return peak;
}

class Checks : public Examination {
 public:
  using Examination::Examination;

  void sums(const std::string& name, at::ScalarType dtype) {
    const std::int64_t size = comm_.size();
    for (const std::int64_t numel : {std::int64_t{1001}, size, size - 1, std::int64_t{1},
                                     std::int64_t{0}, size + 1, std::int64_t{1003}}) {
      if (!faults().empty()) return;
      const std::string what = concat(name, ", ", numel, numel == 1 ? " element" : " elements");
      examine<UnbufferedCommunicator>(
          what, [&](UnbufferedCommunicator& comm) { sums_twice(what + ": ", numel, dtype, comm); });
    }
  }

 private:
  // In a row: a message of the first call must not get into the second.
  void sums_twice(const std::string& prefix, std::int64_t numel, at::ScalarType dtype,
                  UnbufferedCommunicator& comm) {
    // Part of a longer tensor, of which the rest must stay as it is.
    const at::Tensor longer = at::full({numel + 2 * kMargin}, -1, dtype);
    const at::Tensor part = longer.narrow(0, kMargin, numel);
    part.copy_(values_of(comm.rank(), numel, dtype));
    const at::Tensor second = values_of(comm.rank() + 1, numel, dtype);

    reset_memory_peaks();
    const std::int64_t held = peak_of_answer();
    // With more than one dimension, if possible.
    all_reduce_from_messages(numel % 7 == 0 ? part.view({7, numel / 7}) : part, comm);
    const std::int64_t scratch = peak_of_answer() - held;
    const int num_never_waited_for = comm.num_never_waited_for();
    const OpTraffic found = comm.traffic()[CommOp::kSend];
    all_reduce_from_messages(second, comm);

    expect(prefix + "the sum", part, wanted_sum(0, numel, dtype));
    expect(prefix + "the sum of a second call", second, wanted_sum(1, numel, dtype));
    longer.narrow(0, kMargin, numel).fill_(-1);
    expect(prefix + "what is next to the tensor", longer, at::full_like(longer, -1));
    expect(prefix + "the number of operations never waited for", num_never_waited_for, 0);
    const OpTraffic wanted = all_reduce_traffic(numel, part.element_size(), comm.size(),
                                                comm.rank())[CommOp::kAllReduce];
    expect(prefix + "the number of bytes sent", found.bytes_sent, wanted.bytes_sent);
    expect(prefix + "the number of messages sent", found.messages, wanted.messages);
    const std::int64_t own = slice_of(numel, comm.size(), comm.rank()).numel;
    const std::int64_t most = (comm.size() - 1) * own * part.element_size();
    if (scratch > most + kScalarBytes) {
      fault(concat(prefix, "the scratch memory is ", scratch, " bytes, not ", most, ": ",
                   comm.size() - 1, " times ", own, " elements"));
    }
  }

  // Of all ranks' values_of(rank + offset).
  at::Tensor wanted_sum(int offset, std::int64_t numel, at::ScalarType dtype) const {
    at::Tensor sum = values_of(offset, numel, dtype);
    for (int rank = 1; rank < comm_.size(); ++rank) {
      sum = sum + values_of(rank + offset, numel, dtype);
    }
    return sum;
  }

  static constexpr std::int64_t kMargin = 5;
  static constexpr std::int64_t kScalarBytes = 64;  // libtorch may need some: they do not count
};

}  // namespace
}  // namespace collectives

std::vector<std::string> judge_linked(Communicator& comm) {
  install_memory_ledger();
  collectives::Checks checks(comm);
  checks.sums("fp32", at::kFloat);
  checks.sums("bf16", at::kBFloat16);
  checks.sums("fp16", at::kHalf);
  return checks.faults();
}

}  // namespace ladder
