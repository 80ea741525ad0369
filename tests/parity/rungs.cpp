#include "tests/parity/rungs.hpp"

#include <algorithm>
#include <map>

#include "cmake/trainers.hpp"
#include "common/core/check.hpp"
#include "step0_single_gpu/judge/comparison.hpp"
#include "step8_pipeline_ga/objectives/train.hpp"

namespace ladder {
namespace {

std::vector<Trainer> with(Ranks ranks) {
  std::vector<Trainer> all = trainers();
  std::erase_if(all, [&](const Trainer& trainer) { return trainer.ranks != ranks; });
  return all;
}

const Trainer& only(Ranks ranks) {
  static const std::map<Ranks, std::vector<Trainer>> all = {
      {Ranks::kOne, with(Ranks::kOne)},
      {Ranks::kStages, with(Ranks::kStages)},
      {Ranks::kWorkers, with(Ranks::kWorkers)}};
  const std::vector<Trainer>& found = all.at(ranks);
  check(found.size() == 1, "the ladder knows one trainer of this kind, not ", found.size());
  return found[0];
}

}  // namespace

const Trainer& oracle() {
  return only(Ranks::kOne);
}

const std::vector<Trainer>& rungs() {
  static const std::vector<Trainer> all = with(Ranks::kReplicas);
  return all;
}

const Trainer& pipeline() {
  return only(Ranks::kStages);
}

const Trainer& pipeline_with_objectives() {
  static const Trainer trainer = objectives::trainer();
  return trainer;
}

const Trainer& diloco() {
  return only(Ranks::kWorkers);
}

const Trainer& rung_of(const std::string& step) {
  static const std::vector<Trainer> all = [] {
    std::vector<Trainer> steps = trainers();
    steps.push_back(pipeline_with_objectives());
    return steps;
  }();
  const auto found = std::ranges::find(all, step, &Trainer::step);
  check(found != all.end(), "there is no rung ", step);
  return *found;
}

TrainOptions comparable(const Trainer& rung, const TrainOptions& options) {
  return rung.sums_each_microbatch ? with_sums_of_any_order(options) : options;
}

}  // namespace ladder
