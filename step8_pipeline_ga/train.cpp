// Step 8: every rank runs one stage of the model, and microbatches flow through the stages.
#include "step8_pipeline_ga/train.hpp"

#include "common/model/weight_gradients.hpp"
#include "common/optim/norm.hpp"
#include "common/train/generate.hpp"
#include "common/train/run.hpp"
#include "common/train/same_start.hpp"
#include "step3_naive_dp/naive_dp.hpp"
#include "step4_bucketed_ddp/gradient_bucketer.hpp"
#include "step8_pipeline_ga/runner/next_batch.hpp"
#include "step8_pipeline_ga/runner/pipeline_runner.hpp"
#include "step8_pipeline_ga/runner/stage_pipeline.hpp"
#include "step8_pipeline_ga/runner/step_objective.hpp"
#include "step8_pipeline_ga/stage/stage_plan.hpp"
#include "step8_pipeline_ga/stage/stage_state.hpp"

namespace ladder::step8 {

TrainReport train(const TrainOptions& options, Communicator& comm,
                  const MakeObjective& make_objective) {
  const Mesh mesh = Mesh::split(comm, num_stages_of(options, comm.size()));
  Run run(options, mesh);
  const StagePlan plan = plan_stage(options, mesh.num_stages(), mesh.pp_rank());
  run.announce(describe_pipeline(options, plan.cut));
  FlatModel flat(plan.layout);  // of this stage's layers; the others are never created here
  PipelineRunner pipeline = stage_pipeline(options, plan, flat, mesh.stages);
  FlatGradients grads(flat);
  GradientBucketer bucketer(grads, plan_buckets(flat.layout(), bucket_capacity_bytes(options)),
                            mesh.data_parallel);
  Optimizer optimizer(flat, grads, options.optimizer);
  const auto objective = make_objective(options, plan, mesh, flat, optimizer);
  BatchStream batches(step_data(options), objective->shard(replica_shard(options, mesh)));
  const auto state = [&] {
    return stage_state(plan, flat, optimizer, batches, mesh, objective->state);
  };
  run.resume(state());
  check_same_start(run, batches, mesh.world);
  broadcast_parameters(flat, mesh.data_parallel);
  objective->start(run, batches);
  const auto tied = tied_stages(plan, mesh.stages);  // null, but for a tied model's two ends

  while (run.next_step()) {
    auto [batch, metrics] = next_batch(batches, options, mesh.data_parallel);
    objective->prepare(batch, {.epoch = batches.position().epoch});
    const double denominator = all_reduce_sum(objective->count(batch), mesh.data_parallel);
    bucketer.arm(batch.size());
    const double loss = pipeline.accumulate_gradients(
        {objective->count, run.with_loss_scale(objective->loss_sum)}, batch, denominator,
        flush_size(options, batch), call_gradient_hook);
    bucketer.wait();
    all_reduce_tied_gradient(plan, grads, tied.get());
    const Clipping clip(pipeline_norm(plan, grads.flat(), mesh.stages), options.clip_norm,
                        run.loss_scale());
    if (run.decide_step(clip)) {
      optimizer.step(run.learning_rate(), clip.factor);
      objective->after_step();
    }
    grads.zero();
    const double param_norm = pipeline_norm(plan, flat.params(), mesh.stages);
    const StepSums sums = all_reduce_sum(StepSums{loss, run.stop_requested()}, mesh);
    run.end_step({sums.loss, clip.norm, param_norm, denominator, sums.is_stop_requested,
                  join(metrics, objective->take_metrics())});
    if (run.should_save()) run.save(state());
    if (run.should_evaluate()) {
      const double val_loss = evaluate(pipeline, *objective, batches.validation(), mesh);
      run.record_validation(val_loss, objective->take_metrics());
    }
  }
  run.finish(state());
  if (run.should_sample()) run.record_sample(generate(pipeline, options));
  return run.report();
}

}  // namespace ladder::step8
