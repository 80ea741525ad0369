// Step 3: two calls make several replicas train as one model.
#include "step3_naive_dp/train.hpp"

#include "common/optim/norm.hpp"
#include "common/train/build_model.hpp"
#include "common/train/generate.hpp"
#include "common/train/run.hpp"
#include "common/train/same_start.hpp"
#include "step0_single_gpu/accumulate_gradients.hpp"
#include "step0_single_gpu/objective.hpp"
#include "step2_sharded_data/data_shard.hpp"
#include "step2_sharded_data/sharded_evaluate.hpp"
#include "step3_naive_dp/naive_dp.hpp"

namespace ladder::step3 {

TrainReport train(const TrainOptions& options, Communicator& comm) {
  Run run(options, comm);
  FlatModel flat(layout_of(options));
  const Model model = build_model(options, flat);
  FlatGradients grads(flat);
  Optimizer optimizer(flat, grads, options.optimizer);
  BatchStream batches(options.data, data_shard(comm.rank(), comm.size(), options.data));
  run.resume(full_state(flat, optimizer, batches));
  check_same_start(run, batches, comm);
  broadcast_parameters(flat, comm);
  const LossSum loss_sum = run.with_loss_scale(loss_of(model, kNextToken));

  while (run.next_step()) {
    const Microbatches batch = batches.next();
    const double num_targets = all_reduce_sum(kNextToken.count(batch), comm);
    const double loss = accumulate_gradients(loss_sum, batch, num_targets);
    all_reduce_gradients(grads, comm);  // starts after backward, so nothing overlaps with it
    const Clipping clip(gradient_norm(grads), options.clip_norm, run.loss_scale());
    if (run.decide_step(clip)) optimizer.step(run.learning_rate(), clip.factor);
    grads.zero();
    const StepSums sums = all_reduce_sum(StepSums{loss, run.stop_requested()}, comm);
    run.end_step({sums.loss, clip.norm, parameter_norm(flat), num_targets, sums.is_stop_requested});
    if (run.should_save()) run.save(full_state(flat, optimizer, batches));
    if (run.should_evaluate()) {
      run.record_validation(evaluate(loss_sum, batches.validation(), comm));
    }
  }
  run.finish(full_state(flat, optimizer, batches));
  if (run.should_sample()) run.record_sample(generate(model, options));
  return run.report();
}

}  // namespace ladder::step3
