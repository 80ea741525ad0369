#include "common/train/trainer.hpp"

namespace ladder {

Traffic run_traffic(const Trainer& trainer, const TrainOptions& options, std::int64_t num_steps,
                    std::int64_t num_microbatches, int world_size, int rank) {
  Traffic traffic = trainer.step_traffic(options, world_size, rank);
  traffic *= num_steps;
  if (trainer.microbatch_traffic == nullptr) return traffic;
  Traffic missing = trainer.microbatch_traffic(options, world_size, rank);
  missing *= num_steps * options.data.num_microbatches - num_microbatches;
  return traffic -= missing;
}

}  // namespace ladder
