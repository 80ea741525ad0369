#include "step7_zero3/sharded_use.hpp"

#include <ATen/core/grad_mode.h>

#include <vector>

#include "common/core/stop_signal.hpp"
#include "common/core/trace.hpp"
#include "step2_sharded_data/sharded_evaluate.hpp"
#include "step5_zero1/sharded_state.hpp"

namespace ladder {

TrainState sharded_state(const ShardedModel& model, Optimizer& optimizer, BatchStream& batches,
                         ShardGroup& group) {
  const StateTensors parameters = sharded_tensors(model.plan(), {{"", model.param_shard()}}, group);
  return state_of(stored_parameters(model.plan(), parameters, optimizer, group),
                  sharded_tensors(model.plan(), optimizer.state(), group), optimizer, batches,
                  SummedModel{model.plan().layout, model.leaves()});
}

double collective_evaluate(const LossSum& loss_sum, const Microbatches& batches,
                           Communicator& comm) {
  const Span span("evaluate");
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> own;  // read after the loop: reading waits for the device
  for (std::int64_t first = 0; first < batches.size(); first += comm.size()) {
    const double stops = StopSignal::was_raised() ? 1 : 0;  // decided by all: each forward gathers
    if (first > 0 && all_reduce_sum(stops, comm) > 0) return kStoppedLoss;
    const std::int64_t i = first + comm.rank();
    const bool has_one = i < batches.size();
    const at::Tensor sum = loss_sum(batches[has_one ? i : 0]);
    if (has_one) own.push_back(sum.to(at::kDouble));
  }
  return mean_loss(own, /*is_stopped=*/false, batches, comm);
}

}  // namespace ladder
