#include "step8_pipeline_ga/pipeline_use.hpp"

#include <utility>

#include "common/core/check.hpp"
#include "common/train/build_model.hpp"
#include "step2_sharded_data/data_shard.hpp"
#include "step8_pipeline_ga/schedule_check.hpp"
#include "step8_pipeline_ga/schedule_drawing.hpp"
#include "step8_pipeline_ga/schedule_simulation.hpp"

namespace ladder {

Planner planner_of(const TrainOptions& options, int num_stages) {
  return [=, pipeline = options.pipeline](std::int64_t num_microbatches) {
    return plan_pipeline(pipeline.schedule, num_stages, num_microbatches,
                         pipeline.chunks_per_stage);
  };
}

std::string describe_pipeline(const TrainOptions& options, const PipelineCut& cut,
                              int num_replicas) {
  const std::int64_t docs = options.pipeline.docs_per_step;
  const std::string flushes =
      docs > 0 ? concat("as many microbatches as hold ", docs, " documents")
               : concat(options.data.num_microbatches, " microbatch(es) per flush, ",
                        options.pipeline.accumulation, " flush(es)");
  const std::string rows = docs > 0 ? "" : concat(rows_per_step(options, num_replicas), " ");
  return concat(to_string(cut), "global batch: ", rows, "rows (", options.data.microbatch_size,
                " per microbatch, ", flushes, ", ", num_replicas, " replica(s)), schedule ",
                to_string(options.pipeline.schedule));
}

std::string draw_schedule(const TrainOptions& options, int num_stages, bool is_svg) {
  constexpr std::int64_t kMost = 100'000;
  const std::int64_t num_forwards =
      num_stages * options.pipeline.chunks_per_stage * options.data.num_microbatches;
  check_usage(num_forwards <= kMost, "--show-schedule of ", num_stages,
              " stages (--pipeline-stages), ", options.pipeline.chunks_per_stage,
              " chunk(s) per stage (--chunks-per-stage) and ", options.data.num_microbatches,
              " microbatches (--num-microbatches) has ", num_forwards,
              " forwards to draw; choose fewer, at most ", kMost);
  const PipelinePlan plan = planner_of(options, num_stages)(options.data.num_microbatches);
  check_plan(plan);
  const Timeline timeline = simulate(plan, {});
  const std::string title = concat(to_string(options.pipeline.schedule), ", ", num_stages,
                                   " stages, ", plan.num_microbatches, " microbatches");
  return is_svg ? draw_svg(timeline, title, "units") : title + "\n" + draw_text(timeline, "units");
}

DataOptions step_data(const TrainOptions& options) {
  DataOptions data = options.data;
  data.num_microbatches = microbatches_per_step(options);
  if (options.objective.kind == ObjectiveKind::kDpo) data.rows = Rows::kPairs;
  return data;
}

DataShard step_shard(const TrainOptions& options, const Mesh& mesh) {
  DataShard shard = data_shard(mesh.dp_rank(), mesh.num_replicas(), options.data.tail);
  const ObjectiveOptions& objective = options.objective;
  if (objective.kind != ObjectiveKind::kSelfDistillation) return shard;
  if (objective.distillation.scope == SinkhornScope::kBatch) {
    check_usage(options.data.microbatch_size > 1 || microbatches_per_step(options) > 1 ||
                    mesh.num_replicas() > 1 || options.pipeline.docs_per_step > 0,
                "--sinkhorn-scope batch: a step has one sample, and balanced alone it teaches "
                "nothing; take --micro-batch-size or --num-microbatches 2 or more");
    return shard;
  }
  const auto rows = static_cast<std::size_t>(options.data.microbatch_size);
  shard.select = [rows, of_replica = shard.select](std::span<const std::int64_t> order,
                                                   std::int64_t position) {
    std::vector<std::int64_t> samples = of_replica(order, position);
    check_usage(position > 0 || samples.size() != 1,
                "--sinkhorn-scope microbatch: the data have one sample for each replica, and "
                "balanced alone it teaches nothing; take more data, fewer replicas, or "
                "--sinkhorn-scope batch");
    if (samples.size() % rows == 1) samples.pop_back();
    return samples;
  };
  return shard;
}

std::int64_t flush_size(const TrainOptions& options, const Microbatches& batch) {
  return options.pipeline.docs_per_step > 0 ? batch.size() : options.data.num_microbatches;
}

PipelineRunner stage_pipeline(const TrainOptions& options, const StagePlan& plan, FlatModel& flat,
                              Communicator& stages) {
  const Model model = build_model(options, plan.cut.layers_of(plan.stage), flat);
  std::vector<Model> chunks;
  auto layer = model.layers.begin();
  for (const std::size_t c : plan.cut.chunks_on(plan.stage)) {
    const auto end = layer + static_cast<std::ptrdiff_t>(plan.cut.chunks[c].size());
    chunks.push_back({{layer, end}});
    layer = end;
  }
  return {std::move(chunks), options.model.channels, stages, planner_of(options, stages.size()),
          at::TensorOptions().dtype(options.model.precision.params).device(options.device)};
}

double evaluate(PipelineRunner& pipeline, const StepObjective& objective,
                const Microbatches& batches, const Mesh& mesh) {
  std::vector<Microbatch> own;
  for (std::int64_t i = mesh.dp_rank(); i < batches.size(); i += mesh.num_replicas())
    own.push_back(batches[i]);
  Microbatches own_batches(std::move(own));
  objective.prepare(own_batches, {.is_validation = true});
  const std::vector<double> own_sums = pipeline.loss_sums(objective, own_batches);
  std::vector<double> sums(static_cast<std::size_t>(batches.size()));
  for (std::size_t i = 0; i < own_sums.size(); ++i) {
    sums[i * static_cast<std::size_t>(mesh.num_replicas()) +
         static_cast<std::size_t>(mesh.dp_rank())] = own_sums[i];
  }
  all_reduce_sum(sums, mesh.world);  // one rank's value and zeros: no rounding
  double sum = 0;
  for (const double of_microbatch : sums) sum += of_microbatch;
  return sum / objective.count(batches);
}

}  // namespace ladder
