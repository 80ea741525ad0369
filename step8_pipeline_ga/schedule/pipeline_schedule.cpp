#include "step8_pipeline_ga/schedule/pipeline_schedule.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "common/core/check.hpp"

namespace ladder {
namespace {

using Actions = std::vector<Action>;

// Microbatches go through the chunks of a stage in rounds: all of a round through its first chunk,
// then all of it through its second, and so on. A microbatch that left a stage is back for the
// next chunk when p microbatches have entered; so a round of fewer makes the stage wait. If p does
// not divide m, some rounds are longer; they come first.
std::int64_t num_rounds(const PipelinePlan& plan) {
  return std::max<std::int64_t>(1, plan.num_microbatches / plan.num_stages);
}

std::int64_t begin_of_round(const PipelinePlan& plan, std::int64_t round) {
  const std::int64_t count = num_rounds(plan);
  return round * (plan.num_microbatches / count) + std::min(round, plan.num_microbatches % count);
}

// All forwards or all backwards of a stage.
Actions in_rounds(ActionKind kind, const PipelinePlan& plan, int stage) {
  Actions actions;
  for (std::int64_t round = 0; round < num_rounds(plan); ++round) {
    for (int i = 0; i < plan.chunks_per_stage; ++i) {
      const int nth = kind == ActionKind::kForward ? i : plan.chunks_per_stage - 1 - i;
      const std::int64_t end = begin_of_round(plan, round + 1);
      for (std::int64_t microbatch = begin_of_round(plan, round); microbatch < end; ++microbatch) {
        actions.push_back({kind, stage + nth * plan.num_stages, microbatch});
      }
    }
  }
  return actions;
}

// How many forwards a stage computes before its first backward, if it has that many. GPipe: all.
//
// Interleaved: the first round has to pass all chunks but the last. Then the first microbatch is
// on its way to the last stage and back for 2 (p − 1 − r) computations, and the stage goes on with
// forwards. The first round is the longest, so a head start that is enough for it is enough for
// all.
std::int64_t head_start(Schedule schedule, const PipelinePlan& plan, int stage) {
  const int num_later = plan.num_stages - 1 - stage;
  if (schedule == Schedule::kGpipe) return plan.num_microbatches;
  // 1F1B: while stage r computes p − r forwards, the first microbatch gets to the last stage. From
  // then on that stage returns a gradient for every activation, so more forwards would gain
  // nothing; they would only have to be remembered.
  if (schedule != Schedule::kInterleaved) return num_later + 1;
  return (plan.chunks_per_stage - 1) * begin_of_round(plan, 1) + 2 * num_later + 1;
}

// `head_start` forwards, then one backward and one forward in turn, then the rest.
Actions take_turns(const Actions& forwards, const Actions& backwards, std::int64_t head_start) {
  auto forward = forwards.begin() + std::min<std::int64_t>(head_start, std::ssize(forwards));
  Actions order(forwards.begin(), forward);
  for (const Action& backward : backwards) {
    order.push_back(backward);
    if (forward != forwards.end()) order.push_back(*forward++);
  }
  return order;
}

// Zero bubble: cuts each backward in two, and lets stage r compute the wgrad r microbatches later
// than the dgrad. So it remembers r microbatches more than the p − r of 1F1B: p on every stage,
// which is the most that 1F1B has on any. Wgrads fill the gaps between the last dgrads; and stage r,
// which is done with those before the stages in front of it, has r wgrads left.
Actions split_backwards(const Actions& order, int stage) {
  Actions split, wgrads;
  std::size_t num_listed = 0;
  for (const Action& action : order) {
    if (action.kind != ActionKind::kBackward) {
      split.push_back(action);
      continue;
    }
    split.push_back({ActionKind::kInputBackward, action.chunk, action.microbatch});
    wgrads.push_back({ActionKind::kWeightBackward, action.chunk, action.microbatch});
    if (std::ssize(wgrads) > stage) split.push_back(wgrads[num_listed++]);
  }
  split.insert(split.end(), wgrads.begin() + static_cast<std::ptrdiff_t>(num_listed), wgrads.end());
  return split;
}

// The message of this kind that goes with a computation; none if it would leave the model.
std::optional<Action> message(ActionKind kind, const Action& computation, int num_chunks) {
  const Action message = {kind, computation.chunk, computation.microbatch};
  const int other_chunk = other_end(message).chunk;
  if (other_chunk < 0 || other_chunk >= num_chunks) return {};
  return message;
}

// What a computation waits for, and what it makes ready to send. A wgrad has neither.
std::optional<Action> receive_before(const Action& computation, int num_chunks) {
  if (computation.kind == ActionKind::kWeightBackward) return {};
  const bool is_forward = computation.kind == ActionKind::kForward;
  return message(is_forward ? ActionKind::kRecvActivation : ActionKind::kRecvGradient, computation,
                 num_chunks);
}

std::optional<Action> send_after(const Action& computation, int num_chunks) {
  if (computation.kind == ActionKind::kWeightBackward) return {};
  const bool is_forward = computation.kind == ActionKind::kForward;
  return message(is_forward ? ActionKind::kSendActivation : ActionKind::kSendGradient, computation,
                 num_chunks);
}

// Fills plan.stages with the computations of each stage and the messages between them, so that no
// two stages wait for each other, even if every send waits for its receive.
void add_messages(PipelinePlan& plan, const std::vector<Actions>& computations) {
  // Time passes in ticks. In each, first all that the last tick computed is sent; then every stage
  // that has the input of its next computation does it. So a message is listed as soon as it can
  // be sent, and travels while both its ends compute. In a tick, activations go first, those of
  // the last stages first, then gradients the other way round: as a rule, a stage sends before it
  // receives.
  //
  // A send and its receive enter the two lists at the same moment. So every list is a part of one
  // common order, in which everything comes after what it needs. During an execution, consider the
  // first action of that order that has not been executed: it is next in its stage's list, and if
  // it is a message, it is next in both lists. So it can be executed, even if every send waits for
  // its receive, and nothing ever gets stuck. It follows as well that two stages list the messages
  // between them in the same order, in both directions.
  plan.stages.assign(computations.size(), {});
  const auto list = [&plan](const Action& action) {
    plan.stages[static_cast<std::size_t>(plan.stage_of(action.chunk))].push_back(action);
  };
  std::vector<std::span<const Action>> left(computations.begin(), computations.end());
  std::set<Action> received;
  Actions sends;
  for (bool is_done = false; !is_done;) {
    for (const Action& send : std::exchange(sends, {})) {
      list(send);
      list(other_end(send));
      received.insert(other_end(send));
    }
    is_done = true;
    bool is_stuck = true;
    for (std::span<const Action>& actions : left) {
      if (actions.empty()) continue;
      is_done = false;
      const auto input = receive_before(actions.front(), plan.num_chunks());
      if (input && !received.contains(*input)) continue;
      is_stuck = false;
      list(actions.front());
      if (const auto send = send_after(actions.front(), plan.num_chunks())) {
        const bool is_activation = send->kind == ActionKind::kSendActivation;
        sends.insert(is_activation ? sends.begin() : sends.end(), *send);
      }
      actions = actions.subspan(1);
    }
    check(is_done || !is_stuck, "every stage waits for another one to compute something first");
  }
}

PipelinePlan empty_plan(int num_stages, std::int64_t num_microbatches, int chunks_per_stage) {
  check(num_stages >= 1 && num_microbatches >= 1 && chunks_per_stage >= 1,
        "a pipeline needs at least one stage, one microbatch and one chunk per stage, not ",
        num_stages, ", ", num_microbatches, " and ", chunks_per_stage);
  check(num_stages > 1 || chunks_per_stage == 1,
        "a single stage has nothing to interleave: it has ", chunks_per_stage, " chunks; use one");
  return {num_stages, chunks_per_stage, num_microbatches, {}};
}

}  // namespace

PipelinePlan plan_pipeline(Schedule schedule, int num_stages, std::int64_t num_microbatches,
                           int chunks_per_stage) {
  PipelinePlan plan = empty_plan(num_stages, num_microbatches, chunks_per_stage);
  check(chunks_per_stage == 1 || schedule == Schedule::kInterleaved, "schedule ",
        to_string(schedule), " has one chunk per stage, not ", chunks_per_stage,
        "; several need the schedule ", to_string(Schedule::kInterleaved));
  std::vector<Actions> computations;
  for (int stage = 0; stage < num_stages; ++stage) {
    computations.push_back(take_turns(in_rounds(ActionKind::kForward, plan, stage),
                                      in_rounds(ActionKind::kBackward, plan, stage),
                                      head_start(schedule, plan, stage)));
    if (schedule == Schedule::kZeroBubble) {
      computations.back() = split_backwards(computations.back(), stage);
    }
  }
  add_messages(plan, computations);
  return plan;
}

PipelinePlan plan_forwards(int num_stages, std::int64_t num_microbatches, int chunks_per_stage) {
  PipelinePlan plan = empty_plan(num_stages, num_microbatches, chunks_per_stage);
  std::vector<Actions> computations;
  for (int stage = 0; stage < num_stages; ++stage) {
    computations.push_back(in_rounds(ActionKind::kForward, plan, stage));
  }
  add_messages(plan, computations);
  return plan;
}

bool is_message(ActionKind kind) {
  return kind >= ActionKind::kSendActivation;
}

Action other_end(const Action& message) {
  const auto [kind, chunk, microbatch] = message;
  switch (kind) {
    case ActionKind::kSendActivation:
      return {ActionKind::kRecvActivation, chunk + 1, microbatch};
    case ActionKind::kRecvActivation:
      return {ActionKind::kSendActivation, chunk - 1, microbatch};
    case ActionKind::kSendGradient:
      return {ActionKind::kRecvGradient, chunk - 1, microbatch};
    case ActionKind::kRecvGradient:
      return {ActionKind::kSendGradient, chunk + 1, microbatch};
    default:
      throw CheckError(concat("other_end: ", to_string(message), " is not a message"));
  }
}

std::string to_string(const Action& action) {
  constexpr const char* kNames[] = {"F",
                                    "B",
                                    "I",
                                    "W",
                                    "send activation ",
                                    "receive activation ",
                                    "send gradient ",
                                    "receive gradient "};
  const std::string chunk = action.chunk == 0 ? "" : concat(".c", action.chunk);
  return concat(kNames[static_cast<int>(action.kind)], action.microbatch, chunk);
}

const char* name_of(ActionKind kind) {
  constexpr const char* kNames[] = {"forward",       "backward",        "dgrad",
                                    "wgrad",         "send activation", "receive activation",
                                    "send gradient", "receive gradient"};
  return kNames[static_cast<int>(kind)];
}

const char* to_string(Schedule schedule) {
  constexpr const char* kNames[] = {"gpipe", "1f1b", "interleaved", "zero-bubble"};
  return kNames[static_cast<int>(schedule)];
}

}  // namespace ladder
