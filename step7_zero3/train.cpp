// Step 7: no rank ever holds the whole model.
#include "step7_zero3/train.hpp"

#include "common/optim/norm.hpp"
#include "common/train/build_model.hpp"
#include "common/train/generate.hpp"
#include "common/train/run.hpp"
#include "common/train/same_start.hpp"
#include "step0_single_gpu/accumulate_gradients.hpp"
#include "step0_single_gpu/objective.hpp"
#include "step2_sharded_data/data_shard.hpp"
#include "step5_zero1/shard_group.hpp"
#include "step5_zero1/sharded_optimizer.hpp"
#include "step6_zero2/gradient_sharder.hpp"
#include "step7_zero3/sharded_model.hpp"
#include "step7_zero3/sharded_use.hpp"

namespace ladder::step7 {

TrainReport train(const TrainOptions& options, Communicator& comm) {
  Run run(options, comm);
  ShardGroup shards(comm, shard_ranks_of(options, comm.size()));
  const int prefetch = options.get<PrefetchOptions>().num_units;
  ShardedModel model(model_builder(options), prefetch, shards, options.device);  // 1/N of it
  const ShardPlan& plan = model.plan();
  GradientSharder sharder(plan, model.leaves(), shards);
  const std::vector<at::Tensor> own_params = plan.slices_of_shard(model.param_shard());
  const std::vector<at::Tensor> own_grads = plan.slices_of_shard(sharder.grad_shard());
  ShardedOptimizer optimizer(plan, own_params, own_grads, options.optimizer);
  BatchStream batches(options.data, data_shard(comm.rank(), comm.size(), options.data));
  run.resume(sharded_state(model, optimizer, batches, shards));
  check_same_start(run, batches, comm);
  const LossSum loss_sum = run.with_loss_scale(loss_of(model, kNextToken));

  while (run.next_step()) {
    const Microbatches batch = batches.next();
    const double num_targets = all_reduce_sum(kNextToken.count(batch), comm);
    sharder.arm(batch.size());
    // Units come and go.
    const double loss = accumulate_gradients(loss_sum, batch, num_targets);
    sharder.wait();
    const Clipping clip(sharded_norm(own_grads, shards), options.clip_norm, run.loss_scale());
    if (run.decide_step(clip)) optimizer.step(run.learning_rate(), clip.factor);  // no gather
    sharder.zero_grad();
    const double param_norm = sharded_norm(own_params, shards);
    const StepSums sums = all_reduce_sum(StepSums{loss, run.stop_requested()}, comm);
    run.end_step({sums.loss, clip.norm, param_norm, num_targets, sums.is_stop_requested});
    if (run.should_save()) run.save(sharded_state(model, optimizer, batches, shards));
    if (run.should_evaluate()) {
      run.record_validation(collective_evaluate(loss_sum, batches.validation(), comm));
    }
  }
  run.finish(sharded_state(model, optimizer, batches, shards));
  if (run.should_sample()) run.record_sample(generate(model, options));
  return run.report();
}

}  // namespace ladder::step7
