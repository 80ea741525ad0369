#include "common/train/theory.hpp"

#include <iterator>
#include <nlohmann/json.hpp>

#include "common/train/layout.hpp"

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

StateBytes Theory::peak_bytes(const TrainOptions& of_run, int world_size, int rank) const {
  StateBytes peak = state_bytes(of_run, world_size, rank);
  return peak += transient_bytes(of_run, world_size, rank);
}

}  // namespace ladder
