// How a model is cut into the stages of a pipeline, and how a batch goes through it.
#pragma once

#include <cstdint>

#include "common/train/options/step_options.hpp"

namespace ladder {

// The order in which the stages run forwards and backwards.
enum class Schedule { kGpipe, k1f1b, kInterleaved, kZeroBubble };

// One run of the pipeline, a flush, takes --num-microbatches microbatches.
struct PipelineOptions {
  int num_stages = 0;  // 0: as many as there are ranks, so that there is one replica
  Schedule schedule = Schedule::k1f1b;
  int chunks_per_stage = 1;           // more than 1 with kInterleaved only
  std::int64_t accumulation = 1;      // flushes per optimizer step
  std::int64_t local_batch_size = 0;  // rows per flush and replica; 0: --num-microbatches says it
  // Documents per optimizer step, of all replicas: a step is one flush, of as many microbatches as
  // these take. 0: off.
  std::int64_t docs_per_step = 0;

  void declare(OptionTable& table);
  void finalize(TrainOptions& options);
  void shape_batch(BatchShape& batch) const;
};

// The stages on so many ranks: --pipeline-stages, or one per rank. Throws UsageError naming all
// values if they do not divide the ranks, if a flush has fewer microbatches, or if a single stage
// should interleave.
int num_stages_of(const TrainOptions& options, int world_size);

}  // namespace ladder
