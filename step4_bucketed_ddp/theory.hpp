// What theory says of step 4.
#pragma once

#include "common/train/theory.hpp"
#include "step4_bucketed_ddp/bucket_options.hpp"

namespace ladder::step4 {

// A replica and nothing else: the buckets are the gradients themselves.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

// One all-reduce per bucket, padding included, plus one of a single double and one of two.
std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int rank);

// The activations of a microbatch, and what other ranks send of the buckets in flight, maybe all.
std::int64_t working_bytes(const TrainOptions& options, int world_size, int rank);

inline Theory theory() {
  return {
      .step = "step4_bucketed_ddp",
      .state_bytes = state_bytes,
      .sends = sends,
      .working_bytes = working_bytes,
      .options = {.own = step_options<BucketOptions>()},
  };
}

}  // namespace ladder::step4
