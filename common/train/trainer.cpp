#include "common/train/trainer.hpp"

#include <iterator>
#include <nlohmann/json.hpp>

#include "common/train/build_model.hpp"
#include "common/train/start.hpp"

namespace ladder {

const char* to_string(RankRole role) {
  static constexpr const char* kNames[] = {"alone", "replica", "stage", "worker"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(RankRole::kWorker) + 1);
  return kNames[static_cast<std::size_t>(role)];
}

Json no_schedule(const TrainOptions& /*options*/, int /*world_size*/) {
  return nullptr;
}

OptimizerWork work_of_replica(const TrainOptions& options, int /*world_size*/, int /*rank*/) {
  const auto numel = static_cast<double>(layout_of(options).numel);
  return {.updated = numel, .normed = 2 * numel};
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

Traffic Trainer::traffic(const TrainOptions& of_run, const StepsTaken& steps, int world_size,
                         int rank) const {
  return traffic_of(sends(of_run, steps, world_size, rank), rank);
}

}  // namespace ladder
