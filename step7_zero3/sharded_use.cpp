#include "step7_zero3/sharded_use.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <optional>
#include <vector>

#include "common/core/trace.hpp"
#include "common/train/stop_signal.hpp"
#include "step5_zero1/sharded_state.hpp"

namespace ladder {

TrainState sharded_state(const ShardedModel& model, Optimizer& optimizer, BatchStream& batches,
                         Communicator& comm) {
  const StateTensors parameters = sharded_tensors(model.plan(), {{"", model.param_shard()}}, comm);
  return state_of(stored_parameters(model.plan(), parameters, optimizer, comm),
                  sharded_tensors(model.plan(), optimizer.state(), comm), optimizer, batches);
}

double collective_evaluate(const LossSum& loss_sum, const Microbatches& batches,
                           Communicator& comm) {
  const Span span("evaluate");
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> own_sums;  // read after the loop: reading waits for the device
  for (std::int64_t first = 0; first < batches.size(); first += comm.size()) {
    const double stops = StopSignal::was_raised() ? 1 : 0;  // decided by all: each forward gathers
    if (first > 0 && all_reduce_sum(stops, comm) > 0) return kStoppedLoss;
    const std::int64_t own = first + comm.rank();
    const bool has_one = own < batches.size();
    const at::Tensor sum = loss_sum(batches[has_one ? own : 0]);
    if (has_one) own_sums.push_back(sum.to(at::kDouble));
  }
  const at::Tensor sums = at::zeros({batches.size()}, at::kDouble);
  if (!own_sums.empty()) {
    sums.slice(0, comm.rank(), std::nullopt, comm.size()).copy_(at::stack(own_sums));
  }
  comm.all_reduce(sums)->wait();  // one rank's value and zeros: no rounding
  const auto* const values = sums.const_data_ptr<double>();
  double sum = 0;
  for (std::int64_t i = 0; i < batches.size(); ++i) sum += values[i];
  return sum / static_cast<double>(batches.num_targets());
}

}  // namespace ladder
