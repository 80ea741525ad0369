#include "common/train/trainer.hpp"

#include <nlohmann/json.hpp>

#include "common/train/start.hpp"

namespace ladder {

Json no_schedule(const TrainOptions& /*options*/, int /*world_size*/) {
  return nullptr;
}

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

StateBytes Trainer::peak_bytes(const TrainOptions& of_run, int world_size, int rank) const {
  StateBytes peak = state_bytes(of_run, world_size, rank);
  return peak += transient_bytes(of_run, world_size, rank);
}

}  // namespace ladder
