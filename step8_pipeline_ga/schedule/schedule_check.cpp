#include "step8_pipeline_ga/schedule/schedule_check.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "common/core/check.hpp"

namespace ladder {
namespace {

using Places = std::map<Action, std::size_t>;  // where each action is in the list of its stage

std::string describe(const PipelinePlan& plan, Action action) {
  if (plan.chunks_per_stage == 1) action.chunk = 0;  // the stage says it
  return to_string(action);
}

std::string on_stage(const PipelinePlan& plan, const Action& action) {
  return concat("stage ", plan.stage_of(action.chunk), ": ", describe(plan, action));
}

bool is_in_model(const PipelinePlan& plan, const Action& action) {
  return action.chunk >= 0 && action.chunk < plan.num_chunks();
}

std::string fault_in_counts(const PipelinePlan& plan) {
  if (plan.num_stages < 1 || plan.chunks_per_stage < 1 || plan.num_microbatches < 1) {
    return concat("a plan for ", plan.num_stages, " stages with ", plan.chunks_per_stage,
                  " chunks each, and for ", plan.num_microbatches, " microbatches");
  }
  if (std::ssize(plan.stages) != plan.num_stages) {
    return concat("a plan for ", plan.num_stages, " stages has lists for ", plan.stages.size());
  }
  return "";
}

// Fills in `places`.
std::string fault_in_places(const PipelinePlan& plan, Places& places) {
  for (std::size_t stage = 0; stage < plan.stages.size(); ++stage) {
    for (std::size_t i = 0; i < plan.stages[stage].size(); ++i) {
      const Action& action = plan.stages[stage][i];
      const std::string name = concat("stage ", stage, ": ", to_string(action));
      if (!is_in_model(plan, action)) return name + " is of a chunk that does not exist";
      if (action.microbatch < 0 || action.microbatch >= plan.num_microbatches) {
        return name + " is of a microbatch that does not exist";
      }
      if (std::cmp_not_equal(plan.stage_of(action.chunk), stage)) {
        return concat(name, " belongs to stage ", plan.stage_of(action.chunk));
      }
      if (is_message(action.kind) && !is_in_model(plan, other_end(action))) {
        return concat(on_stage(plan, action), " has no other end: the model ends here");
      }
      if (!places.emplace(action, i).second) return on_stage(plan, action) + " is there twice";
    }
  }
  return "";
}

std::string fault_in_completeness(const PipelinePlan& plan, const Places& places) {
  const bool has_backward = std::any_of(places.begin(), places.end(), [](const auto& entry) {
    return !is_message(entry.first.kind) && entry.first.kind != ActionKind::kForward;
  });
  for (int chunk = 0; chunk < plan.num_chunks(); ++chunk) {
    for (std::int64_t microbatch = 0; microbatch < plan.num_microbatches; ++microbatch) {
      const Action forward = {ActionKind::kForward, chunk, microbatch};
      const Action backward = {ActionKind::kBackward, chunk, microbatch};
      const Action dgrad = {ActionKind::kInputBackward, chunk, microbatch};
      const Action wgrad = {ActionKind::kWeightBackward, chunk, microbatch};
      if (!places.contains(forward)) return on_stage(plan, forward) + " is missing";
      if (!has_backward) continue;
      const bool is_cut = places.contains(dgrad) || places.contains(wgrad);
      if (places.contains(backward) == is_cut) {
        return concat(on_stage(plan, backward), is_cut ? " is there whole and cut" : " is missing");
      }
      for (const Action& half : {dgrad, wgrad}) {
        if (is_cut && !places.contains(half)) return on_stage(plan, half) + " is missing";
      }
    }
  }
  return "";
}

// The actions that an action needs on its own stage. Where two are listed as one, either will do.
std::vector<std::vector<ActionKind>> needs(const PipelinePlan& plan, const Action& action) {
  using enum ActionKind;
  const bool is_first = action.chunk == 0, is_last = action.chunk == plan.num_chunks() - 1;
  switch (action.kind) {
    case kForward:
      if (is_first) return {};
      return {{kRecvActivation}};
    case kBackward:
    case kInputBackward:
      if (is_last) return {{kForward}};
      return {{kForward}, {kRecvGradient}};
    case kWeightBackward:
      return {{kInputBackward}};
    case kSendActivation:
      return {{kForward}};
    case kSendGradient:
      return {{kInputBackward, kBackward}};
    default:
      return {};
  }
}

std::string fault_in_needs(const PipelinePlan& plan, const Places& places, bool has_messages) {
  for (const auto& [action, place] : places) {
    for (const std::vector<ActionKind>& either : needs(plan, action)) {
      if (!has_messages && is_message(either.front())) continue;
      Action needed = action;
      for (const ActionKind kind : either) {
        needed.kind = kind;
        if (places.contains(needed)) break;
      }
      const auto found = places.find(needed);
      if (found == places.end() || found->second > place) {
        return concat(on_stage(plan, action), found == places.end() ? " lacks " : " comes before ",
                      describe(plan, needed), ", which it needs");
      }
    }
    if (is_message(action.kind) && !places.contains(other_end(action))) {
      return concat(on_stage(plan, action),
                    " has no other end: ", on_stage(plan, other_end(action)), " is missing");
    }
  }
  return "";
}

// The order in which a chunk's gradients are summed.
std::string fault_in_sums(const PipelinePlan& plan, const Places& places) {
  for (const ActionKind half : {ActionKind::kInputBackward, ActionKind::kWeightBackward}) {
    for (int chunk = 0; chunk < plan.num_chunks(); ++chunk) {
      auto before = places.end();
      for (std::int64_t microbatch = 0; microbatch < plan.num_microbatches; ++microbatch) {
        auto adds = places.find({ActionKind::kBackward, chunk, microbatch});
        if (adds == places.end()) adds = places.find({half, chunk, microbatch});
        if (adds == places.end()) return "";  // forwards only
        if (before != places.end() && before->second > adds->second) {
          return concat(on_stage(plan, adds->first), " comes before ",
                        describe(plan, before->first),
                        ": the chunk's gradients are summed out of order");
        }
        before = adds;
      }
    }
  }
  return "";
}

// From a stage that waits for another one, which waits, too, and so on: those that wait in a circle.
template <class Partner>
std::vector<int> circle_from(int stage, const Partner& partner_of) {
  std::vector<int> waiting;
  for (; std::find(waiting.begin(), waiting.end(), stage) == waiting.end();
       stage = partner_of(stage)) {
    waiting.push_back(stage);
  }
  waiting.erase(waiting.begin(), std::find(waiting.begin(), waiting.end(), stage));
  return waiting;
}

// Executes a plan to the letter on the strictest transport.
class Rendezvous {
 public:
  explicit Rendezvous(const PipelinePlan& plan) : plan_(plan), num_done_(plan.stages.size(), 0) {}

  // Goes on until no stage can.
  std::string fault() {
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (int stage = 0; stage < plan_.num_stages; ++stage) {
        while (const Action* action = next(stage)) {
          if (is_message(action->kind)) {
            const int partner = plan_.stage_of(other_end(*action).chunk);
            const Action* met = next(partner);
            if (met == nullptr || *met != other_end(*action)) break;
            ++num_done(partner);
          }
          ++num_done(stage);
          goes_on = true;
        }
      }
    }
    for (int stage = 0; stage < plan_.num_stages; ++stage) {
      if (next(stage) != nullptr) return cycle_from(stage);
    }
    return "";
  }

 private:
  std::size_t& num_done(int stage) { return num_done_[static_cast<std::size_t>(stage)]; }
  const Action* next(int stage) {
    const std::vector<Action>& actions = plan_.stages[static_cast<std::size_t>(stage)];
    return num_done(stage) < actions.size() ? &actions[num_done(stage)] : nullptr;
  }

  // Every stage that is left waits for another that is left: its partner has not met it yet.
  std::string cycle_from(int stage) {
    const std::vector<int> waiting = circle_from(
        stage, [this](int each) { return plan_.stage_of(other_end(*next(each)).chunk); });
    std::string text = concat("stage ", waiting.front());
    for (const int member : waiting) {
      const Action& message = *next(member);
      text += concat(member == waiting.front() ? " waits to " : ", which waits to ",
                     describe(plan_, message), is_send(message) ? " to stage " : " from stage ",
                     plan_.stage_of(other_end(message).chunk));
    }
    const bool is_mismatch =
        waiting.size() == 2 && is_send(*next(waiting[0])) != is_send(*next(waiting[1]));
    return (is_mismatch ? "messages in different orders: " : "deadlock: ") + text;
  }

  static bool is_send(const Action& action) {
    return action.kind == ActionKind::kSendActivation || action.kind == ActionKind::kSendGradient;
  }

  const PipelinePlan& plan_;
  std::vector<std::size_t> num_done_;
};

// Computes in the order of a plan without messages, until no stage can go on.
std::string fault_in_order(const PipelinePlan& plan) {
  std::vector<std::span<const Action>> left(plan.stages.begin(), plan.stages.end());
  std::set<Action> done;
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (std::span<const Action>& actions : left) {
      for (; !actions.empty(); actions = actions.subspan(1)) {
        const auto awaited = awaited_by(plan, actions.front());
        if (awaited && !done.contains(*awaited)) break;
        done.insert(actions.front());
        goes_on = true;
      }
    }
  }
  const auto stuck =
      std::find_if(left.begin(), left.end(), [](const auto& each) { return !each.empty(); });
  if (stuck == left.end()) return "";
  const auto awaited = [&](int stage) {
    return *awaited_by(plan, left[static_cast<std::size_t>(stage)].front());
  };
  const auto partner = [&](int stage) { return plan.stage_of(awaited(stage).chunk); };
  std::string text;
  for (const int stage : circle_from(static_cast<int>(stuck - left.begin()), partner)) {
    text += concat(text.empty() ? concat("deadlock: stage ", stage) : ", which", " waits for ",
                   describe(plan, awaited(stage)), " of stage ", partner(stage));
  }
  return text;
}

std::string what_is_wrong(const PipelinePlan& plan, bool has_messages) {
  Places places;
  std::string fault = fault_in_counts(plan);
  if (fault.empty()) fault = fault_in_places(plan, places);
  if (fault.empty()) fault = fault_in_completeness(plan, places);
  if (fault.empty()) fault = fault_in_needs(plan, places, has_messages);
  if (fault.empty()) fault = fault_in_sums(plan, places);
  if (!fault.empty()) return fault;
  return has_messages ? Rendezvous(plan).fault() : fault_in_order(plan);
}

}  // namespace

std::string what_is_wrong_with(const PipelinePlan& plan) {
  return what_is_wrong(plan, /*has_messages=*/true);
}

std::string what_is_wrong_with_order(const PipelinePlan& plan) {
  return what_is_wrong(plan, /*has_messages=*/false);
}

std::optional<Action> awaited_by(const PipelinePlan& plan, const Action& computation) {
  const auto [kind, chunk, microbatch] = computation;
  if (kind == ActionKind::kWeightBackward) return {};
  const bool is_forward = kind == ActionKind::kForward;
  Action awaited = {ActionKind::kForward, is_forward ? chunk - 1 : chunk + 1, microbatch};
  if (!is_in_model(plan, awaited)) return {};
  if (is_forward) return awaited;
  const auto& there = plan.stages[static_cast<std::size_t>(plan.stage_of(awaited.chunk))];
  awaited.kind = ActionKind::kInputBackward;
  if (std::find(there.begin(), there.end(), awaited) == there.end()) {
    awaited.kind = ActionKind::kBackward;
  }
  return awaited;
}

void check_plan(const PipelinePlan& plan) {
  const std::string fault = what_is_wrong_with(plan);
  check(fault.empty(), "pipeline plan: ", fault);
}

}  // namespace ladder
