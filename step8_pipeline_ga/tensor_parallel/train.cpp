// Step 8, and the layers of a stage are shared by several ranks.
#include "step8_pipeline_ga/tensor_parallel/train.hpp"

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
#include "step8_pipeline_ga/tensor_parallel/sequence_parallel.hpp"
#include "step8_pipeline_ga/tensor_parallel/tensor_parts.hpp"

namespace ladder::tensor_parallel {

TrainReport train(const TrainOptions& options, Communicator& comm) {
  const MeshShape shape = tensor_mesh_of(options, comm.size());
  const Mesh mesh = Mesh::split(comm, shape.num_stages, shape.num_tensor_ranks);
  Run run(options, mesh);
  const Parts parts = with_rows_cut(parts_on(mesh, options), mesh, options);  // of each layer
  const StagePlan plan = plan_stage(options, mesh.num_stages(), mesh.pp_rank(), parts);
  run.announce(describe_pipeline(options, plan.cut));
  FlatModel flat(plan.layout);  // of these parts of this stage's layers, and of what all parts use
  PipelineRunner pipeline = stage_pipeline(options, plan, flat, mesh.stages);
  FlatGradients grads(flat);
  GradientBucketer bucketer(grads, plan_buckets(flat.layout(), bucket_capacity_bytes(options)),
                            mesh.data_parallel);
  Optimizer optimizer(flat, grads, options.optimizer);
  StepObjective objective;  // the next token, whose logits are in parts as well
  BatchStream batches(step_data(options), replica_shard(options, mesh));  // for all its ranks
  const auto state = [&] { return stage_state(plan, flat, optimizer, batches, mesh); };
  run.resume(state());
  check_same_start(run, batches, mesh.world);
  broadcast_parameters(flat, mesh.data_parallel);
  const auto tied = tied_stages(plan, mesh.stages);

  while (run.next_step()) {
    auto [batch, metrics] = next_batch(batches, options, mesh.data_parallel);
    const double num_targets = all_reduce_sum(objective.count(batch), mesh.data_parallel);
    bucketer.arm(batch.size());
    const double loss = pipeline.accumulate_gradients(
        {objective.count, run.with_loss_scale(objective.loss_sum)}, batch, num_targets,
        flush_size(options, batch), call_gradient_hook);  // every layer adds up its parts
    bucketer.wait();
    all_reduce_tied_gradient(plan, grads, tied.get());
    // What all parts use has the same gradient on all tensor ranks, and counts once.
    const Clipping clip(pipeline_norm(plan, grads.flat(), mesh.model_parallel), options.clip_norm,
                        run.loss_scale());
    if (run.decide_step(clip)) optimizer.step(run.learning_rate(), clip.factor);
    grads.zero();
    const double param_norm = pipeline_norm(plan, flat.params(), mesh.model_parallel);
    const double own_loss = counted_once(loss, mesh);  // so does the loss
    const StepSums sums = all_reduce_sum(StepSums{own_loss, run.stop_requested()}, mesh);
    run.end_step({sums.loss, clip.norm, param_norm, num_targets, sums.is_stop_requested, metrics});
    if (run.should_save()) run.save(state());
    if (run.should_evaluate()) {
      const double val_loss = evaluate(pipeline, objective, batches.validation(), mesh);
      run.record_validation(val_loss);
    }
  }
  run.finish(state());
  WholeLogits whole(pipeline, parts, options.model.vocab_size);
  if (run.should_sample()) run.record_sample(generate(whole, options));
  return run.report();
}

}  // namespace ladder::tensor_parallel
