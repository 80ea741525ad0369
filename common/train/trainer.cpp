#include "common/train/trainer.hpp"

namespace ladder {

Traffic run_traffic(const Trainer& trainer, const TrainOptions& options, std::int64_t num_steps,
                    const BatchCounts& counts, int world_size, int rank) {
  Traffic traffic = trainer.step_traffic(options, world_size, rank);
  traffic *= num_steps;
  const auto subtract = [&](auto part_of, std::int64_t times) {
    if (part_of == nullptr) return;
    Traffic missing = part_of(options, world_size, rank);
    traffic -= missing *= times;
  };
  const std::int64_t full = num_steps * microbatches_per_step(options);
  subtract(trainer.microbatch_traffic, full - counts.microbatches);
  subtract(trainer.row_traffic, full * options.data.microbatch_size - counts.rows);
  return traffic;
}

}  // namespace ladder
