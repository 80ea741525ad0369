#include "common/train/trainer.hpp"
#include "common/train/start.hpp"

namespace ladder {

TrainOptions options_for(const Trainer& trainer, TrainOptions options) {
  options.step = trainer.step;
  options.own.keep_only(trainer.options.own);
  finalize(options);
  return options;
}

StepsTaken full_step(const TrainOptions& options) {
  const std::int64_t microbatches = microbatches_per_step(options);
  return {.batches = {.microbatches = microbatches,
                      .rows = microbatches * options.data.microbatch_size}};
}

StepsTaken steps_of(const TrainReport& report) {
  const auto num_steps = static_cast<std::int64_t>(report.losses.size());
  return {report.first_step, report.first_step + num_steps, report.batch_counts};
}

int num_stages_of(const Trainer& trainer, const TrainOptions& options, int world_size) {
  return trainer.num_stages == nullptr ? 1 : trainer.num_stages(options, world_size);
}

PeakBytes peak_bytes_of(const Trainer& trainer, const TrainOptions& options, int world_size,
                        int rank) {
  return trainer.peak_bytes == nullptr ? peak_of(trainer.state_bytes(options, world_size, rank))
                                       : trainer.peak_bytes(options, world_size, rank);
}

std::optional<std::int64_t> working_bytes_of(const Trainer& trainer, const TrainOptions& options,
                                             int world_size, int rank) {
  if (trainer.working_bytes == nullptr || !options.shape.has_fixed_size) return std::nullopt;
  return trainer.working_bytes(options, world_size, rank);
}

}  // namespace ladder
