#include "step2_sharded_data/sharded_evaluate.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <optional>
#include <vector>

#include "common/core/stop_signal.hpp"
#include "common/core/trace.hpp"

namespace ladder {

double evaluate(const LossSum& loss_sum, const Microbatches& batches, Communicator& comm) {
  const Span span("evaluate");
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> own;  // read after the loop: reading waits for the device
  for (std::int64_t i = comm.rank(); i < batches.size(); i += comm.size()) {
    if (StopSignal::was_raised()) break;
    own.push_back(loss_sum(batches[i]).to(at::kDouble));
  }
  return mean_loss(own, StopSignal::was_raised(), batches, comm);
}

double mean_loss(const std::vector<at::Tensor>& own, bool is_stopped, const Microbatches& batches,
                 Communicator& comm) {
  const at::Tensor sums = at::zeros({batches.size()}, at::kDouble);
  if (is_stopped) {
    sums.fill_(kStoppedLoss);
  } else if (!own.empty()) {
    sums.slice(0, comm.rank(), std::nullopt, comm.size()).copy_(at::stack(own));
  }
  comm.all_reduce(sums)->wait();  // one rank's value and zeros: no rounding
  const auto* const values = sums.const_data_ptr<double>();
  double sum = 0;
  for (std::int64_t i = 0; i < batches.size(); ++i) sum += values[i];
  return sum / static_cast<double>(batches.num_targets());
}

}  // namespace ladder
