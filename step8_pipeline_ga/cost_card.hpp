// What a pipeline holds and sends, for the cost cards of chapters that train with it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/comm/mesh_shape.hpp"
#include "common/model/part_plan.hpp"
#include "common/train/options/options.hpp"
#include "common/train/sends.hpp"
#include "common/train/theory.hpp"
#include "step8_pipeline_ga/stage/stage_plan.hpp"

namespace ladder::step8 {

// A rank's place in the mesh.
struct Place {
  MeshShape mesh;
  int stage = 0, replica = 0, tensor_rank = 0;
  Parts parts;  // its own
  // Among how many ranks rows of activations between layers are divided.
  int row_owners() const { return mesh.cuts_rows ? mesh.num_tensor_ranks : 1; }

  RankGroup replicas() const;      // of this stage and tensor rank
  RankGroup stages() const;        // of this replica and tensor rank
  RankGroup tensor_ranks() const;  // of this stage and replica
  RankGroup model_ranks() const;   // all of this replica
};
// A rank of so many stages, and tensor ranks that share the model's parts.
Place place_of(const TrainOptions& options, const MeshShape& mesh, int rank);
// The same for step 8's own ranks, which have whole layers.
Place place_of(const TrainOptions& options, int world_size, int rank);

// The stage of this place.
StagePlan plan_stage(const TrainOptions& options, const Place& place);

// The activations of each microbatch, from every chunk but the model's last.
void add_forward_sends(SendPlan& plan, const TrainOptions& options, const Place& place,
                       const StagePlan& stage);

// Step 8's cost card for a rank anywhere in a mesh.
StateBytes state_bytes_at(const TrainOptions& options, const Place& place);
std::vector<Send> sends_at(const TrainOptions& options, const StepsTaken& steps,
                           const Place& place);
std::optional<std::int64_t> working_bytes_at(const TrainOptions& options, const Place& place);
OptimizerWork optimizer_work_at(const TrainOptions& options, const Place& place);

}  // namespace ladder::step8
