// What a pipeline sends, for the cost card of a chapter that trains with it.
#pragma once

#include "common/train/options/options.hpp"
#include "common/train/sends.hpp"
#include "step8_pipeline_ga/stage/pipeline_cut.hpp"

namespace ladder::step8 {

// A rank's place in the mesh.
struct Place {
  int num_stages, stage, num_replicas, replica;

  RankGroup replicas() const;  // of this stage
  RankGroup stages() const;    // of this replica
};
Place place_of(const TrainOptions& options, int world_size, int rank);

// The activations of each microbatch, from every chunk but the model's last.
void add_forward_sends(SendPlan& plan, const TrainOptions& options, const Place& place,
                       const PipelineCut& cut);

}  // namespace ladder::step8
