#include "tests/parity/rungs.hpp"

#include <algorithm>

#include "cmake/trainers.hpp"
#include "common/core/check.hpp"
#include "step0_single_gpu/judge/comparison.hpp"
#include "step8_pipeline_ga/objectives/train.hpp"
#include "step8_pipeline_ga/tensor_parallel/train.hpp"

namespace ladder {
namespace {

const std::vector<Trainer>& all() {
  static const std::vector<Trainer> steps = trainers();
  return steps;
}

const Trainer& first(RankRole role) {
  return *std::ranges::find(all(), role, &Trainer::role);
}

}  // namespace

const Trainer& oracle() {
  return first(RankRole::kAlone);
}

const std::vector<Trainer>& rungs() {
  static const std::vector<Trainer> replicas = [] {
    std::vector<Trainer> kept = all();
    std::erase_if(kept, [](const Trainer& rung) { return rung.role != RankRole::kReplica; });
    return kept;
  }();
  return replicas;
}

const Trainer& pipeline() {
  return first(RankRole::kStage);
}

const Trainer& pipeline_with_objectives() {
  static const Trainer trainer = objectives::trainer();
  return trainer;
}

const Trainer& tensor_trainer() {
  static const Trainer trainer = tensor_parallel::trainer();
  return trainer;
}

const Trainer& diloco() {
  return first(RankRole::kWorker);
}

const Trainer& rung_of(const std::string& step) {
  if (step == tensor_trainer().step) return tensor_trainer();
  const auto found = std::ranges::find(all(), step, &Trainer::step);
  check(found != all().end(), "there is no rung ", step);
  return *found;
}

TrainOptions comparable(const Trainer& rung, const TrainOptions& options) {
  return rung.sums_each_microbatch ? with_sums_of_any_order(options) : options;
}

}  // namespace ladder
