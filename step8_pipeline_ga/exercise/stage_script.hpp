// For the judge, part 2: all that a stage has to do for a batch, in flushes, by plans that are
// right.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "step8_pipeline_ga/exercise/judged_pipeline.hpp"
#include "step8_pipeline_ga/exercise/plan_communicator.hpp"
#include "step8_pipeline_ga/exercise/right_schedule.hpp"

namespace ladder::step8 {

class StageScript {
 public:
  // Microbatches are numbered through the flushes.
  StageScript(const std::function<PipelinePlan(std::int64_t num_microbatches)>& planner, int stage,
              const Microbatches& batch, std::int64_t flush_size,
              at::ScalarType type = at::kFloat) {
    for (std::int64_t first = 0; first < batch.size(); first += flush_size) {
      const PipelinePlan plan = planner(std::min(flush_size, batch.size() - first));
      for (Action action : plan.stages[static_cast<std::size_t>(stage)]) {
        action.microbatch += first;
        if (!is_message(action.kind)) {
          computations_.push_back(action);
          continue;
        }
        const at::Tensor& tokens = batch[action.microbatch].tokens;
        messages_.push_back({action,
                             plan.stage_of(other_end(action).chunk),
                             {tokens.size(0), tokens.size(1), JudgedPipeline::kChannels},
                             type});
        num_before_.push_back(computations_.size());
      }
    }
  }

  const std::vector<Action>& computations() const { return computations_; }
  const std::vector<PlannedMessage>& messages() const { return messages_; }

  // How many gradients of separate weight halves have been computed when this message starts; the
  // index messages().size(): in all.
  std::int64_t num_weight_gradients(std::size_t message,
                                    const JudgedPipeline::Gradients& gradients) const {
    const std::size_t end =
        message < messages_.size() ? num_before_[message] : computations_.size();
    std::int64_t count = 0;
    for (std::size_t i = 0; i < end; ++i) {
      if (computations_[i].kind != ActionKind::kWeightBackward) continue;
      for (const auto& [name, gradient] : gradients.of_leaves.at(place_of(computations_[i])))
        count += JudgedPipeline::is_of_linear_layer(name) ? 1 : 0;
    }
    return count;
  }

  // How many of them are this leaf's.
  std::int64_t num_weight_halves_of(const std::string& name) const {
    if (!JudgedPipeline::is_of_linear_layer(name)) return 0;
    return std::count_if(computations_.begin(), computations_.end(), [](const Action& action) {
      return action.kind == ActionKind::kWeightBackward;
    });
  }

  // What the leaves' .grad must hold afterwards: the sum in the order of the computations, which is
  // that of the microbatches but for a leaf that several chunks share.
  std::map<std::string, at::Tensor> sums(const JudgedPipeline::Gradients& gradients) const {
    std::map<std::string, at::Tensor> sums;
    for (const Action& action : computations_) {
      if (action.kind == ActionKind::kForward) continue;
      for (const auto& [name, gradient] : gradients.of_leaves.at(place_of(action))) {
        const bool is_weight_half = action.kind == ActionKind::kWeightBackward;
        const bool is_whole = action.kind == ActionKind::kBackward;
        if (!is_whole && is_weight_half != JudgedPipeline::is_of_linear_layer(name)) continue;
        at::Tensor& sum = sums[name];
        sum = sum.defined() ? sum + gradient : gradient;
      }
    }
    return sums;
  }

 private:
  static Pass place_of(const Action& action) { return {action.chunk, action.microbatch}; }

  std::vector<Action> computations_;
  std::vector<PlannedMessage> messages_;
  std::vector<std::size_t> num_before_;  // computations, by message
};

}  // namespace ladder::step8
