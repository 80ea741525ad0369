// Step 5: every rank keeps the optimizer state for its slices of the model, and updates only those.
#include "step5_zero1/train.hpp"

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
#include "step4_bucketed_ddp/gradient_bucketer.hpp"
#include "step5_zero1/parameter_gather.hpp"
#include "step5_zero1/shard_group.hpp"
#include "step5_zero1/sharded_optimizer.hpp"
#include "step5_zero1/sharded_state.hpp"

namespace ladder::step5 {

TrainReport train(const TrainOptions& options, Communicator& comm) {
  Run run(options, comm);
  ShardGroup shards(comm, shard_ranks_of(options, comm.size()));      // all ranks; step 7 has fewer
  FlatModel flat(layout_of(options, shard_multiple(shards.size())));  // in equal slices
  Model model = build_model(options, flat);
  ParameterGather gather(flat, model, shards);  // a layer waits until its unit is whole again
  FlatGradients grads(flat);
  const ShardPlan plan = plan_shards(flat.layout(), shards.size(), shards.rank());
  GradientBucketer bucketer(grads, plan_unit_buckets(flat.layout()), shards, start_reduce_scatter);
  const std::vector<at::Tensor> own_params = plan.slices_of_full(flat.params());
  const std::vector<at::Tensor> own_grads = plan.slices_of_full(grads.flat());
  ShardedOptimizer optimizer(plan, own_params, own_grads, options.optimizer);
  BatchStream batches(options.data, data_shard(comm.rank(), comm.size(), options.data));
  run.resume(sharded_state(flat, plan, optimizer, batches, shards));
  check_same_start(run, batches, comm);
  broadcast_parameters(flat, comm);
  const LossSum loss_sum = run.with_loss_scale(loss_of(model, kNextToken));

  while (run.next_step()) {
    const Microbatches batch = batches.next();
    const double num_targets = all_reduce_sum(kNextToken.count(batch), comm);
    gather.start();              // what the other ranks updated
    bucketer.arm(batch.size());  // each rank will receive its slice of every unit's sum
    const double loss = accumulate_gradients(loss_sum, batch, num_targets);
    bucketer.wait();
    const Clipping clip(sharded_norm(own_grads, shards), options.clip_norm, run.loss_scale());
    if (run.decide_step(clip)) optimizer.step(run.learning_rate(), clip.factor);  // its slices
    grads.zero();
    const double param_norm = sharded_norm(own_params, shards);
    const StepSums sums = all_reduce_sum(StepSums{loss, run.stop_requested()}, comm);
    run.end_step({sums.loss, clip.norm, param_norm, num_targets, sums.is_stop_requested});
    if (run.should_save() || run.should_evaluate()) gather.complete();
    if (run.should_save()) run.save(sharded_state(flat, plan, optimizer, batches, shards));
    if (run.should_evaluate()) {
      run.record_validation(evaluate(loss_sum, batches.validation(), comm));
    }
  }
  gather.complete();
  run.finish(sharded_state(flat, plan, optimizer, batches, shards));
  if (run.should_sample()) run.record_sample(generate(model, options));
  return run.report();
}

}  // namespace ladder::step5
