// What the loop asks of its objective. For the next token, all of it but count and loss_sum does
// nothing; the chapter objectives brings two objectives with a second model.
//
//   prepare      before the forward: what a second model says about the batch is filled in, by a
//                run of the pipeline without gradients (dpo's frozen reference, the teacher)
//   count        what the loss is a mean over: the one denominator
//   loss_sum     on the last stage: the summed loss of a microbatch, from the model's outputs
//   after_step   the teacher takes a step towards the student, unless the student's was skipped
//
// Losses and metrics are sums with their counts until all ranks have added up theirs.
#pragma once

#include <functional>
#include <memory>

#include "common/comm/mesh.hpp"
#include "common/data/batch_stream.hpp"
#include "common/optim/flat_model.hpp"
#include "common/optim/optimizer.hpp"
#include "common/train/options/options.hpp"
#include "common/train/report/step_record.hpp"
#include "common/train/run.hpp"
#include "step0_single_gpu/objective.hpp"
#include "step8_pipeline_ga/runner/pipeline_runner.hpp"
#include "step8_pipeline_ga/stage/stage_plan.hpp"
#include "step8_pipeline_ga/stage/stage_state.hpp"

namespace ladder {

// Where a batch comes from: the validation data, or an epoch of the training data.
struct BatchOrigin {
  bool is_validation = false;
  std::int64_t epoch = 0;
};

struct StepObjective : Objective {
  StepObjective(const Objective& scores = kNextToken)
      : Objective(scores) {}  // NOLINT(*-explicit-*)
  virtual ~StepObjective() = default;

  // Selects the replica's samples that it can learn from. Local.
  virtual DataShard shard(const DataShard& of_replica) const { return of_replica; }
  // Once, when the model has its parameters. Collective over the world.
  virtual void start(Run& /*run*/, const BatchStream& /*batches*/) {}
  // Collective over the stages; of a training batch, also over the replicas.
  virtual void prepare(Microbatches& /*batch*/, const BatchOrigin& /*origin*/) {}
  virtual void after_step() {}  // local
  // The means over everything scored since the last call, on all ranks. Collective over the world;
  // communicates only if the objective has metrics.
  virtual Metrics take_metrics() { return {}; }

  AddedState state = {};  // to save
};

// Makes the objective of a run. Lifetime: mesh, model and optimizer outlive it.
using MakeObjective = std::function<std::unique_ptr<StepObjective>(
    const TrainOptions& options, const StagePlan& plan, const Mesh& mesh, const FlatModel& model,
    Optimizer& optimizer)>;
inline const MakeObjective next_token = [](const auto&...) {
  return std::make_unique<StepObjective>();
};

// The validation loss: each replica runs every N-th microbatch through its pipeline. Equal to the
// loss of one process to the bit. Long ones run in parts: kStoppedLoss if a rank is asked to stop
// before the next. Collective over the world.
double evaluate(PipelineRunner& pipeline, StepObjective& objective, const Microbatches& batches,
                const Mesh& mesh);

// Adds up what the objectives of all ranks have summed, `size` numbers, and clears this rank's.
// Collective, blocking.
MetricSums take_sums(MetricSums& own, std::size_t size, const Mesh& mesh);

}  // namespace ladder
