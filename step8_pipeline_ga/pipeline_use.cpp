#include "step8_pipeline_ga/pipeline_use.hpp"

#include "common/core/check.hpp"

namespace ladder {

int num_stages_of(const TrainOptions& options, int world_size) {
  const int num_stages = options.pipeline.num_stages > 0 ? options.pipeline.num_stages : world_size;
  check_usage(world_size % num_stages == 0, "--pipeline-stages is ", num_stages,
              ", which does not divide ", world_size,
              " ranks: every replica needs one rank per stage");
  check_usage(options.data.num_microbatches >= num_stages, "--micro-batch-size ",
              options.data.microbatch_size, ", --num-microbatches ", options.data.num_microbatches,
              ", ", num_stages, " stages: a flush needs at least as many microbatches as stages");
  return num_stages;
}

Planner planner_of(const TrainOptions& options, int num_stages) {
  return [=, pipeline = options.pipeline](std::int64_t num_microbatches) {
    return plan_pipeline(pipeline.schedule, num_stages, num_microbatches,
                         pipeline.chunks_per_stage);
  };
}

DataOptions step_data(const TrainOptions& options) {
  DataOptions data = options.data;
  data.num_microbatches = microbatches_per_step(options);
  return data;
}

std::vector<Model> chunks_of(const Model& model, const PipelineCut& cut, int stage) {
  std::vector<Model> chunks;
  auto layer = model.layers.begin();
  for (auto c = static_cast<std::size_t>(stage); c < cut.chunks.size();
       c += static_cast<std::size_t>(cut.num_stages)) {
    const auto end = layer + static_cast<std::ptrdiff_t>(cut.chunks[c].size());
    chunks.push_back({{layer, end}});
    layer = end;
  }
  return chunks;
}

double evaluate(PipelineRunner& pipeline, const Objective& objective, const Microbatches& batches,
                const Mesh& mesh) {
  std::vector<Microbatch> own;
  for (std::int64_t i = mesh.dp_rank(); i < batches.size(); i += mesh.num_replicas())
    own.push_back(batches[i]);
  const std::vector<double> own_sums = pipeline.loss_sums(objective, Microbatches(std::move(own)));
  std::vector<double> sums(static_cast<std::size_t>(batches.size()));
  for (std::size_t i = 0; i < own_sums.size(); ++i) {
    sums[i * static_cast<std::size_t>(mesh.num_replicas()) +
         static_cast<std::size_t>(mesh.dp_rank())] = own_sums[i];
  }
  all_reduce_sum(sums, mesh.world);  // one rank's value and zeros: no rounding
  double sum = 0;
  for (const double of_microbatch : sums) sum += of_microbatch;
  return sum / static_cast<double>(batches.num_targets());
}

}  // namespace ladder
