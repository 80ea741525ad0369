#include "tests/parity/planted_pipeline_errors.hpp"

#include <algorithm>

#include "common/core/check.hpp"
#include "common/optim/norm.hpp"
#include "common/testing/forwarding_communicator.hpp"
#include "common/train/run.hpp"
#include "common/train/step_sums.hpp"
#include "step0_single_gpu/objective.hpp"
#include "step2_sharded_data/data_shard.hpp"
#include "step4_bucketed_ddp/bucket_options.hpp"
#include "step4_bucketed_ddp/gradient_bucketer.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"
#include "step8_pipeline_ga/runner/evaluate.hpp"
#include "step8_pipeline_ga/runner/next_batch.hpp"
#include "step8_pipeline_ga/runner/pipeline_runner.hpp"
#include "step8_pipeline_ga/runner/stage_pipeline.hpp"
#include "step8_pipeline_ga/stage/stage_plan.hpp"
#include "step8_pipeline_ga/stage/stage_state.hpp"
#include "step8_pipeline_ga/stage/stage_sums.hpp"

namespace ladder {
namespace {

// Sends the message before this one once more, where it has the same shape.
class StaleSends final : public ForwardingCommunicator {
 public:
  StaleSends(Communicator& inner, bool is_on) : ForwardingCommunicator(inner), is_on_(is_on) {}
  WorkPtr send(const at::Tensor& tensor, int peer, int tag) override {
    const bool is_stale =
        is_on_ && peer > rank() && last_.defined() && last_.sizes() == tensor.sizes();
    const at::Tensor sent = is_stale ? last_ : tensor;
    if (peer > rank()) last_ = tensor;
    return inner_.send(sent, peer, tag);
  }

 private:
  bool is_on_;
  at::Tensor last_;
};

// Flush after flush, with the mistake in between.
class WrongAccumulation {
 public:
  WrongAccumulation(PipelineError error, FlatGradients& grads, GradientBucketer& bucketer,
                    PipelineRunner& pipeline, std::int64_t num_microbatches)
      : error_(error),
        grads_(grads),
        bucketer_(bucketer),
        pipeline_(pipeline),
        num_microbatches_(num_microbatches) {}

  double run(const Microbatches& batch, double num_targets) {
    const bool is_early = error_ == PipelineError::kSummedBeforeTheLastBackward;
    if (!is_early) bucketer_.arm(batch.size());
    double loss = 0;
    for (std::int64_t first = 0; first < batch.size(); first += num_microbatches_) {
      if (first > 0 && error_ == PipelineError::kWipedBetweenFlushes) grads_.zero();
      const std::int64_t end = std::min(first + num_microbatches_, batch.size());
      const Microbatches flush(std::vector<Microbatch>(batch.begin() + first, batch.begin() + end));
      if (is_early) bucketer_.arm(flush.size());
      loss += pipeline_.accumulate_gradients(kNextToken, flush, num_targets, num_microbatches_);
      if (is_early) bucketer_.wait();
      if (error_ == PipelineError::kScaledAgainAfterEachFlush) grads_.flat().div_(2);
    }
    if (!is_early) bucketer_.wait();
    return loss;
  }

 private:
  PipelineError error_;
  FlatGradients& grads_;
  GradientBucketer& bucketer_;
  PipelineRunner& pipeline_;
  std::int64_t num_microbatches_;
};

}  // namespace

const char* to_string(PipelineError error) {
  switch (error) {
    case PipelineError::kNone:
      return "no error";
    case PipelineError::kScaledAgainAfterEachFlush:
      return "gradients scaled again after each flush";
    case PipelineError::kWipedBetweenFlushes:
      return "gradients wiped between flushes";
    case PipelineError::kSummedBeforeTheLastBackward:
      return "gradients summed over replicas before the last backward";
    case PipelineError::kAnotherMicrobatchsActivation:
      return "a stage that receives another microbatch's activation";
    case PipelineError::kMissingTiedPart:
      return "a tied embedding without the other stage's part";
  }
  throw CheckError(concat("no such error: ", static_cast<int>(error)));
}

TrainReport train_pipeline_with(PipelineError error, const TrainOptions& options, World& world) {
  const Mesh mesh = Mesh::split(world.comm(), num_stages_of(options, world.comm().size()));
  Run run(options, mesh);
  const StagePlan plan = plan_stage(options, mesh.num_stages(), mesh.pp_rank());
  FlatModel flat(plan.layout);
  StaleSends stages(mesh.stages, error == PipelineError::kAnotherMicrobatchsActivation);
  PipelineRunner pipeline = stage_pipeline(options, plan, flat, stages);
  FlatGradients grads(flat);
  GradientBucketer bucketer(grads, plan_buckets(flat.layout(), bucket_capacity_bytes(options)),
                            mesh.data_parallel);
  Optimizer optimizer(flat, grads, options.optimizer);
  BatchStream batches(step_data(options),
                      data_shard(mesh.dp_rank(), mesh.num_replicas(), options.data.tail));
  run.resume(stage_state(plan, flat, optimizer, batches, mesh));
  const auto tied = tied_stages(plan, mesh.stages);
  WrongAccumulation accumulation(error, grads, bucketer, pipeline, options.data.num_microbatches);

  while (run.next_step()) {
    const Microbatches batch = batches.next();
    const double num_targets = all_reduce_sum(kNextToken.count(batch), mesh.data_parallel);
    const double loss = accumulation.run(batch, num_targets);
    if (error != PipelineError::kMissingTiedPart) all_reduce_tied_gradient(plan, grads, tied.get());
    const Clipping clip(pipeline_norm(plan, grads.flat(), mesh.stages), options.clip_norm);
    optimizer.step(run.learning_rate(), clip.factor);
    grads.zero();
    const double param_norm = pipeline_norm(plan, flat.params(), mesh.stages);
    const StepSums sums = all_reduce_sum(StepSums{loss, run.stop_requested()}, mesh.world);
    run.record({sums.loss, clip.norm, param_norm, num_targets, sums.is_stop_requested});
    if (run.should_evaluate())
      run.record_validation(evaluate(pipeline, kNextToken, batches.validation(), mesh));
  }
  run.finish(stage_state(plan, flat, optimizer, batches, mesh));
  return run.report();
}

}  // namespace ladder
