#include "step8_pipeline_ga/schedule/schedule_simulation.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "common/core/check.hpp"

namespace ladder {
namespace {

double cost_s(ActionKind kind, const PipelineCosts& costs) {
  switch (kind) {
    case ActionKind::kForward:
      return costs.forward_s;
    case ActionKind::kBackward:
      return costs.backward_s;
    case ActionKind::kInputBackward:
      return costs.input_backward_s;
    case ActionKind::kWeightBackward:
      return costs.weight_backward_s;
    default:
      throw CheckError("a message takes no time to compute");
  }
}

// When results reach the chunks that need them.
class Arrivals {
 public:
  Arrivals(int num_chunks, double link_s) : num_chunks_(num_chunks), link_s_(link_s) {}

  // When the input of a computation arrives; infinity if it has not been computed yet.
  double of_input(const Action& computation) const {
    if (computation.kind == ActionKind::kWeightBackward) return 0;
    const Action source = result(computation, -1);
    if (source.chunk < 0 || source.chunk == num_chunks_) return 0;
    const auto found = end_s_.find(source);
    if (found == end_s_.end()) return std::numeric_limits<double>::infinity();
    return found->second + link_s_;
  }

  void add_result(const TimedAction& timed) {
    if (timed.action.kind != ActionKind::kWeightBackward) {
      end_s_[result(timed.action, 0)] = timed.end_s;
    }
  }

 private:
  // What is computed `num_chunks` further along the microbatch's way. Later chunks do not care
  // whether a gradient comes from a whole backward or from a dgrad.
  static Action result(const Action& computation, int num_chunks) {
    const auto [kind, chunk, microbatch] = computation;
    if (kind == ActionKind::kForward) return {kind, chunk + num_chunks, microbatch};
    return {ActionKind::kInputBackward, chunk - num_chunks, microbatch};
  }

  int num_chunks_;
  double link_s_;
  std::map<Action, double> end_s_;
};

std::int64_t longest_round(int num_stages, std::int64_t num_microbatches) {
  const std::int64_t num_rounds = std::max<std::int64_t>(1, num_microbatches / num_stages);
  return (num_microbatches + num_rounds - 1) / num_rounds;
}

std::vector<std::int64_t> peak_live(const Timeline& timeline) {
  std::vector<std::int64_t> peaks;
  for (const std::vector<TimedAction>& stage : timeline) {
    std::int64_t live = 0, peak = 0;
    bool has_backward = false;
    for (const TimedAction& timed : stage) {
      const ActionKind kind = timed.action.kind;
      if (kind == ActionKind::kForward) peak = std::max(peak, ++live);
      if (kind == ActionKind::kBackward || kind == ActionKind::kWeightBackward)
        --live, has_backward = true;
    }
    peaks.push_back(has_backward ? peak : 0);
  }
  return peaks;
}

}  // namespace

Timeline simulate(const PipelinePlan& plan, const PipelineCosts& costs) {
  Timeline timeline(plan.stages.size());
  std::vector<std::size_t> next(plan.stages.size(), 0);
  Arrivals arrivals(plan.num_chunks(), costs.link_s);
  std::size_t num_left = 0;
  for (const std::vector<Action>& actions : plan.stages) num_left += actions.size();
  while (num_left > 0) {
    const std::size_t num_left_before = num_left;
    for (std::size_t stage = 0; stage < plan.stages.size(); ++stage) {
      for (; next[stage] < plan.stages[stage].size(); ++next[stage], --num_left) {
        const Action& action = plan.stages[stage][next[stage]];
        if (is_message(action.kind)) continue;
        const double free_s = timeline[stage].empty() ? 0 : timeline[stage].back().end_s;
        const double begin_s = std::max(free_s, arrivals.of_input(action));
        if (begin_s == std::numeric_limits<double>::infinity()) break;
        timeline[stage].push_back({action, begin_s, begin_s + cost_s(action.kind, costs)});
        arrivals.add_result(timeline[stage].back());
      }
    }
    check(num_left < num_left_before,
          "simulate: every stage waits for another one to compute "
          "something first; check_plan() tells what is wrong");
  }
  return timeline;
}

TimelineSummary summarize(const Timeline& timeline) {
  double begin_s = std::numeric_limits<double>::infinity(), end_s = 0, computing_s = 0;
  for (const std::vector<TimedAction>& stage : timeline) {
    for (const TimedAction& timed : stage) {
      if (is_message(timed.action.kind)) continue;
      begin_s = std::min(begin_s, timed.begin_s);
      end_s = std::max(end_s, timed.end_s);
      computing_s += timed.end_s - timed.begin_s;
    }
  }
  if (computing_s == 0) return {0, 0, 0, peak_live(timeline)};
  const double all_s = static_cast<double>(timeline.size()) * (end_s - begin_s);
  const double idle_s = all_s - computing_s;
  return {end_s - begin_s, idle_s / computing_s, idle_s / all_s, peak_live(timeline)};
}

double ideal_s(Schedule schedule, std::int64_t num_microbatches, int chunks_per_stage,
               const PipelineCosts& costs) {
  const double backward_s = schedule == Schedule::kZeroBubble
                                ? costs.input_backward_s + costs.weight_backward_s
                                : costs.backward_s;
  return static_cast<double>(num_microbatches * chunks_per_stage) * (costs.forward_s + backward_s);
}

double formula_s(Schedule schedule, int num_stages, std::int64_t num_microbatches,
                 int chunks_per_stage, const PipelineCosts& costs) {
  const auto [forward_s, backward_s, input_s, weight_s, link_s] = costs;
  double bubble_s = (num_stages - 1) * (forward_s + backward_s);
  if (schedule == Schedule::kZeroBubble) {
    check(
        num_microbatches >= num_stages && weight_s <= std::min(forward_s, input_s),
        "formula_s: the zero-bubble schedule has a simple formula only for as many microbatches as "
        "stages or more, and for a wgrad that is the shortest part; use simulate()");
    bubble_s = (num_stages - 1) * (forward_s + input_s - weight_s);
  }
  // Too few microbatches to keep the stages busy until the first one is back for the next chunk.
  const std::int64_t num_missing = std::max<std::int64_t>(0, num_stages - num_microbatches);
  bubble_s += static_cast<double>((chunks_per_stage - 1) * num_missing) * (forward_s + backward_s);
  return ideal_s(schedule, num_microbatches, chunks_per_stage, costs) + bubble_s;
}

std::int64_t most_live_microbatches(Schedule schedule, int num_stages,
                                    std::int64_t num_microbatches, int chunks_per_stage,
                                    int stage) {
  const std::int64_t num_later = num_stages - 1 - stage;
  switch (schedule) {
    case Schedule::kGpipe:
      return num_microbatches;
    case Schedule::k1f1b:
      return std::min(num_microbatches, num_later + 1);
    case Schedule::kInterleaved:
      return std::min(
          num_microbatches * chunks_per_stage,
          2 * num_later + (chunks_per_stage - 1) * longest_round(num_stages, num_microbatches) + 1);
    case Schedule::kZeroBubble:
      return std::min<std::int64_t>(num_microbatches, num_stages);
  }
  throw CheckError("most_live_microbatches: no such schedule");
}

}  // namespace ladder
