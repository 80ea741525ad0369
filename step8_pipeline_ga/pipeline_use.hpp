// How the trainer uses a pipeline: its stages, its data, its validation loss.
#pragma once

#include <string>
#include <vector>

#include "common/comm/mesh.hpp"
#include "common/optim/flat_model.hpp"
#include "common/train/options.hpp"
#include "step8_pipeline_ga/pipeline_cut.hpp"
#include "step8_pipeline_ga/pipeline_runner.hpp"
#include "step8_pipeline_ga/stage_plan.hpp"
#include "step8_pipeline_ga/step_objective.hpp"

namespace ladder {

// The schedule that the options name, for any number of microbatches.
Planner planner_of(const TrainOptions& options, int num_stages);

// What the run does, for its log: the layers of each stage, and what makes up the global batch.
std::string describe_pipeline(const TrainOptions& options, const PipelineCut& cut,
                              int num_replicas);

// The schedule as --show-schedule draws it, for a backward that takes twice as long as a forward:
// as text, or as an SVG file. Throws UsageError if there are too many forwards to draw.
std::string draw_schedule(const TrainOptions& options, int num_stages, bool is_svg);

// The data options of a whole optimizer step: the microbatches of all its flushes, and the rows that
// the objective needs.
DataOptions step_data(const TrainOptions& options);

// The samples of this replica, as in step 2. Where a teacher balances each microbatch by itself, the
// last sample that an epoch has for this replica is left out if it would be a microbatch of its own:
// balanced alone, it belongs to every prototype alike.
DataShard step_shard(const TrainOptions& options, const Mesh& mesh);

// The microbatches of one flush of this step: --num-microbatches, or all with --docs-per-step.
std::int64_t flush_size(const TrainOptions& options, const Microbatches& batch);

// Builds the stage's layers over `flat`, with their initial values, and connects them with the other
// stages. Lifetime: `flat` and `stages` outlive the runner.
PipelineRunner stage_pipeline(const TrainOptions& options, const StagePlan& plan, FlatModel& flat,
                              Communicator& stages);

// The validation loss: each replica runs every N-th microbatch through its pipeline. Equal to the
// loss of one process to the bit. Collective over the world. What the objective has measured on the
// way is left for its take_metrics().
double evaluate(PipelineRunner& pipeline, const StepObjective& objective,
                const Microbatches& batches, const Mesh& mesh);

}  // namespace ladder
