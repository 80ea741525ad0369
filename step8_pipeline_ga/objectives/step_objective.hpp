// The three objectives as the pipeline's loop uses them: it calls the same functions for each, and
// does not know which one it has.
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
  // Once, when the student has its parameters. Collective over the world.
  std::function<void(Run& run)> start = [](Run&) {};
  // Collective over the stages; of a training batch, also over the replicas.
  std::function<void(Microbatches& batch, const BatchOrigin& origin)> prepare =
      [](Microbatches&, const BatchOrigin&) {};
  std::function<void()> after_step = [] {};  // local
  // The means over everything scored since the last call, on all ranks. Collective over the world;
  // communicates only if the objective has metrics.
  std::function<Metrics()> take_metrics = [] { return Metrics(); };
  AddedState state = {};  // to save
};

// The objective that the options name. Lifetime: the arguments outlive it, but for options and
// plan.
StepObjective make_objective(const TrainOptions& options, const StagePlan& plan, const Mesh& mesh,
                             const FlatModel& student, Optimizer& optimizer,
                             const BatchStream& batches);

// Those with a second model, whose stages run next to the model's: a frozen reference, or a cache
// of what it says; and a teacher, an average in fp32 of what the student's optimizer updates: its
// masters, or, if it has none, the parameters themselves.
StepObjective dpo_objective(const TrainOptions& options, const StagePlan& plan, const Mesh& mesh,
                            const BatchStream& batches);
StepObjective distillation_objective(const TrainOptions& options, const StagePlan& plan,
                                     const Mesh& mesh, const FlatModel& student,
                                     Optimizer& optimizer);

// The validation loss, as step 8 computes it, once a second model has seen the batches. Collective
// over the world.
double evaluate(PipelineRunner& pipeline, const StepObjective& objective,
                const Microbatches& batches, const Mesh& mesh);

// Adds up what the objectives of all ranks have summed, `size` numbers, and clears this rank's.
// Collective, blocking.
MetricSums take_sums(MetricSums& own, std::size_t size, Communicator& world);

}  // namespace ladder
