#include "common/train/trainer.hpp"

namespace ladder {

Traffic run_traffic(const Trainer& trainer, const TrainOptions& options, const TrainReport& report,
                    int world_size, int rank) {
  const auto num_steps = static_cast<std::int64_t>(report.losses.size());
  if (trainer.traffic_between != nullptr) {
    return trainer.traffic_between(options, report.first_step, report.first_step + num_steps,
                                   world_size, rank);
  }
  const BatchCounts& counts = report.batch_counts;
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
