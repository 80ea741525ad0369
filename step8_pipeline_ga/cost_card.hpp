// The cost card of README.md as functions of numbers alone; the chapter objectives adds to it.
#pragma once

#include "common/train/trainer.hpp"

namespace ladder::step8 {

// 16 bytes per parameter of the rank's own stage.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

// The buckets of the stage's own gradients among its replicas, activations and their gradients to
// its neighbors, a tied embedding's gradient, the block sums of two norms, and three scalars.
Traffic traffic(const TrainOptions& options, const StepsTaken& steps, int world_size, int rank);

// The activations of all live microbatches of the stage, messages that have come or wait to go, and
// what other ranks send of the buckets in flight, maybe all.
std::int64_t working_bytes(const TrainOptions& options, int world_size, int rank);

// A rank's place in the mesh.
struct Place {
  int num_stages, stage, num_replicas, replica;
};
Place place_of(const TrainOptions& options, int world_size, int rank);

// The activations of one forward of these microbatches: from every chunk but the model's last.
Traffic forward_traffic(const TrainOptions& options, const BatchCounts& batches,
                        const Place& place);

}  // namespace ladder::step8
