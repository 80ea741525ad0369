// How many ranks share the layers of a stage.
#pragma once

#include "common/comm/mesh_shape.hpp"
#include "common/train/options/step_options.hpp"

namespace ladder {

struct TensorOptions {
  int num_ranks = 1;  // each has as many of --product-parts, by default one
  // Between the layers' parts, each rank has some rows of the activations instead of all.
  bool is_sequence_parallel = false;

  void declare(OptionTable& table);
  void finalize(TrainOptions& options);
  void shape_batch(BatchShape& batch) const;
};

// The places of so many ranks. Throws UsageError naming all values if --pipeline-stages and
// --tensor-ranks do not divide them.
MeshShape tensor_mesh_of(const TrainOptions& options, int world_size);

}  // namespace ladder
