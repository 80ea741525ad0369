// What theory says of a worker that may die.
#pragma once

#include "step9_diloco/elastic/elastic_options.hpp"
#include "step9_diloco/theory.hpp"

namespace ladder::elastic {

// What a worker of step 9 holds. Its world has no other rank to send to; what workers send to each
// other is not counted. Throws UsageError for several ranks.
StateBytes state_bytes(const TrainOptions& options, int world_size, int rank);

// Throws UsageError for several ranks.
void check_alone(int world_size);

inline Theory theory() {
  return {
      .step = "elastic",
      .role = RankRole::kWorker,
      .num_models = 2,
      .keeps = {"a checkpoint's average in flight"},
      .state_bytes = state_bytes,
      .sends = step9::sends,
      .transient_bytes = step9::transient_bytes,
      .largest_traffic = step9::largest_traffic,
      .holds_scratch = step9::holds_scratch,
      .tries = never,
      .options = {.own = step_options<DilocoOptions, ElasticOptions>()},
  };
}

}  // namespace ladder::elastic
