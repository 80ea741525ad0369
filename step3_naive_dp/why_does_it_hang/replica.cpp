#include "step3_naive_dp/why_does_it_hang/replica.hpp"

#include <ATen/core/grad_mode.h>

#include <cstdio>

#include "common/optim/norm.hpp"
#include "common/train/build_model.hpp"
#include "common/train/same_start.hpp"
#include "step0_single_gpu/objective.hpp"
#include "step2_sharded_data/data_shard.hpp"

namespace ladder::hang {

Replica::Replica(const TrainOptions& its_options, Communicator& comm)
    : options(its_options),
      run(options, comm),
      flat(layout_of(options)),
      model(build_model(options, flat)),
      grads(flat),
      optimizer(flat, grads, options.optimizer),
      batches(options.data, data_shard(comm.rank(), comm.size(), options.data)) {
  run.resume(full_state(flat, optimizer, batches));
  check_same_start(run, batches, comm);
}

double Replica::count(const Microbatches& batch) const {
  return static_cast<double>(kNextToken.count(batch));
}

double Replica::accumulate(const Microbatches& batch, double num_targets) {
  const LossSum loss_sum = run.with_loss_scale(loss_of(model, kNextToken));
  return accumulate_gradients(loss_sum, batch, num_targets);
}

double Replica::update() {
  const Clipping clip(gradient_norm(grads), options.clip_norm, run.loss_scale());
  if (run.decide_step(clip)) optimizer.step(run.learning_rate(), clip.factor);
  grads.zero();
  return clip.norm;
}

double Replica::evaluate(const Microbatch& microbatch) {
  const at::NoGradGuard no_grad;
  ++num_evaluated;
  return loss_of(model, kNextToken)(microbatch).item<double>();
}

void Replica::record(const StepSums& sums, double grad_norm, double num_targets) {
  run.end_step({sums.loss, grad_norm, parameter_norm(flat), num_targets, sums.is_stop_requested});
}

void Replica::show(const char* what, double value) {
  shown.push_back({run.num_steps_taken(), what, value});
  if (!options.output.is_quiet) std::printf("%s %.4f\n", what, value);
}

TrainReport Replica::finish() {
  run.finish(full_state(flat, optimizer, batches));
  return run.report();
}

}  // namespace ladder::hang
