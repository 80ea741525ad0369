// Step 8's cost card, for ranks that share layers.
#include "step8_pipeline_ga/cost_card.hpp"

#include <nlohmann/json.hpp>

#include "common/core/check.hpp"
#include "step8_pipeline_ga/tensor_parallel/tensor_options.hpp"
#include "step8_pipeline_ga/tensor_parallel/theory.hpp"

namespace ladder::tensor_parallel {
namespace {

step8::Place place_in_mesh(const TrainOptions& options, int world_size, int rank) {
  return step8::place_of(options, tensor_mesh_of(options, world_size), rank);
}

}  // namespace

StateBytes state_bytes(const TrainOptions& options, int world_size, int rank) {
  return step8::state_bytes_at(options, place_in_mesh(options, world_size, rank));
}

std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int rank) {
  return step8::sends_at(options, steps, place_in_mesh(options, world_size, rank));
}

std::optional<std::int64_t> working_bytes(const TrainOptions& options, int world_size, int rank) {
  return step8::working_bytes_at(options, place_in_mesh(options, world_size, rank));
}

OptimizerWork optimizer_work(const TrainOptions& options, int world_size, int rank) {
  return step8::optimizer_work_at(options, place_in_mesh(options, world_size, rank));
}

Json schedule_json(const TrainOptions& options, int world_size) {
  return step8::schedule_json(options, tensor_mesh_of(options, world_size).num_stages);
}

double bubble(const TrainOptions& options, int world_size) {
  return step8::bubble(options, tensor_mesh_of(options, world_size).num_stages);
}

// As many rows as other steps have: tensor ranks share those of one replica.
Tries tries(const TrainOptions& options, int world_size) {
  if (options.given.contains("tensor-ranks")) return as_it_is(options, world_size);
  const ModelOptions& model = options.model;
  const std::int64_t heads = model.kv_heads != 0 ? model.kv_heads : model.heads;
  const bool has_count = options.given.contains("num-microbatches");
  const std::int64_t each = has_count ? options.data.num_microbatches : 1;
  Tries all;
  for (int ranks = 2; world_size % ranks == 0 && heads % ranks == 0; ranks *= 2)
    all.push_back({concat(ranks, " tensor ranks"),
                   concat("--tensor-ranks ", ranks, " --num-microbatches ", each * ranks)});
  return all;
}

}  // namespace ladder::tensor_parallel
