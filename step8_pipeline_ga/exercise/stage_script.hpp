// For the judge, part 2: plans that are right, whatever the answer to part 1 is, and all that a
// stage has to do for a batch by them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "step8_pipeline_ga/exercise/judged_pipeline.hpp"
#include "step8_pipeline_ga/exercise/plan_communicator.hpp"
#include "step8_pipeline_ga/schedule/schedule_check.hpp"
#include "step8_pipeline_ga/schedule/schedule_simulation.hpp"

namespace ladder::step8 {

// Knows no schedule's order, only how much its stages may remember: each goes forward while it
// remembers less than that, later chunks first, and otherwise backward. check_plan() says that the
// plan is right.
class GreedyPlan {
 public:
  static PipelinePlan plan(Schedule schedule, int num_stages, std::int64_t num_microbatches,
                           int chunks_per_stage) {
    GreedyPlan greedy(schedule, {num_stages, chunks_per_stage, num_microbatches, {}});
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (int stage = 0; stage < num_stages; ++stage) goes_on |= greedy.compute_next(stage);
    }
    check_plan(greedy.plan_);
    return greedy.plan_;
  }

 private:
  GreedyPlan(Schedule schedule, PipelinePlan plan)
      : schedule_(schedule),
        backward_(schedule == Schedule::kZeroBubble ? ActionKind::kInputBackward
                                                    : ActionKind::kBackward),
        plan_(std::move(plan)),
        num_live_(static_cast<std::size_t>(plan_.num_stages)) {
    plan_.stages.resize(num_live_.size());
  }

  bool compute_next(int stage) {
    const auto& [num_stages, num_own, num_microbatches, stages] = plan_;
    const std::int64_t most =
        most_live_microbatches(schedule_, num_stages, num_microbatches, num_own, stage);
    const bool may_go_forward = num_live_[static_cast<std::size_t>(stage)] < most;
    for (const ActionKind kind : {ActionKind::kForward, backward_, ActionKind::kWeightBackward}) {
      if (kind == ActionKind::kForward && !may_go_forward) continue;
      for (int nth = num_own - 1; nth >= 0; --nth) {
        if (compute(kind, stage + nth * num_stages)) return true;
      }
    }
    return false;
  }

  // The chunk's next microbatch, if what it needs is there.
  bool compute(ActionKind kind, int chunk) {
    std::int64_t& microbatch = num_done_[{kind, chunk}];
    if (microbatch == num_ready(kind, chunk)) return false;
    const auto list = [&](const Action& action) {
      plan_.stages[static_cast<std::size_t>(plan_.stage_of(action.chunk))].push_back(action);
    };
    list({kind, chunk, microbatch});
    const bool is_forward = kind == ActionKind::kForward;
    const Action send = {is_forward ? ActionKind::kSendActivation : ActionKind::kSendGradient,
                         chunk, microbatch++};
    const bool leaves_model = chunk == (is_forward ? plan_.num_chunks() - 1 : 0);
    if (kind != ActionKind::kWeightBackward && !leaves_model) list(send), list(other_end(send));
    std::int64_t& num_live = num_live_[static_cast<std::size_t>(plan_.stage_of(chunk))];
    if (kind != ActionKind::kInputBackward) num_live += is_forward ? 1 : -1;
    return true;
  }

  std::int64_t num_ready(ActionKind kind, int chunk) {
    const std::int64_t all = plan_.num_microbatches;
    const auto num_done = [&](ActionKind of, int at) { return num_done_[{of, at}]; };
    if (kind == ActionKind::kForward) return chunk == 0 ? all : num_done(kind, chunk - 1);
    if (kind == ActionKind::kWeightBackward) return num_done(ActionKind::kInputBackward, chunk);
    const bool is_last = chunk + 1 == plan_.num_chunks();
    return is_last ? num_done(ActionKind::kForward, chunk) : num_done(kind, chunk + 1);
  }

  Schedule schedule_;
  ActionKind backward_;
  PipelinePlan plan_;
  std::vector<std::int64_t> num_live_;                           // on each stage
  std::map<std::pair<ActionKind, int>, std::int64_t> num_done_;  // microbatches, by kind and chunk
};

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

  // How many gradients of separate wgrads have been computed when this message starts; the
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
  std::int64_t num_wgrads_of(const std::string& name) const {
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
        const bool is_wgrad = action.kind == ActionKind::kWeightBackward;
        const bool is_whole = action.kind == ActionKind::kBackward;
        if (!is_whole && is_wgrad != JudgedPipeline::is_of_linear_layer(name)) continue;
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
