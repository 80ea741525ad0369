#include "step8_pipeline_ga/schedule/schedule_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <random>
#include <utility>

#include "common/core/check.hpp"

namespace ladder {
namespace {

using enum ActionKind;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// ---- the faults, one by one ----

using Change = std::function<void(PipelinePlan& plan)>;

std::vector<Action>& actions_of(PipelinePlan& plan, int stage) {
  return plan.stages.at(static_cast<std::size_t>(stage));
}

auto find(PipelinePlan& plan, const Action& action) {
  std::vector<Action>& actions = actions_of(plan, plan.stage_of(action.chunk));
  const auto found = std::find(actions.begin(), actions.end(), action);
  check(found != actions.end(), "the plan has no ", to_string(action));
  return found;
}

Change added(int stage, Action action) {
  return [=](PipelinePlan& plan) { actions_of(plan, stage).push_back(action); };
}

Change removed(Action action) {
  return [=](PipelinePlan& plan) {
    actions_of(plan, plan.stage_of(action.chunk)).erase(find(plan, action));
  };
}

Change moved(Action action, Action to_before) {
  return [=](PipelinePlan& plan) {
    removed(action)(plan);
    actions_of(plan, plan.stage_of(action.chunk)).insert(find(plan, to_before), action);
  };
}

Change swapped(Action one, Action other) {
  return [=](PipelinePlan& plan) { std::iter_swap(find(plan, one), find(plan, other)); };
}

struct Case {
  PipelinePlan plan;
  Change change;
  const char* fault;
};

std::string fault_after(PipelinePlan plan, const std::vector<Change>& changes) {
  for (const Change& change : changes) change(plan);
  return what_is_wrong_with(plan);
}

void expect_faults(const std::vector<Case>& cases) {
  for (const auto& [plan, change, fault] : cases) EXPECT_EQ(fault_after(plan, {change}), fault);
}

TEST(ScheduleCheck, NothingIsMissing) {
  for (const Schedule schedule : {Schedule::k1f1b, Schedule::kZeroBubble}) {
    const PipelinePlan complete = plan_pipeline(schedule, 3, 4);
    for (Action action : complete.stages[1]) {
      const std::string fault = fault_after(complete, {removed(action)});
      action.chunk = 0;  // with one chunk per stage, the stage says it
      const std::string name = to_string(action);
      EXPECT_TRUE(fault.ends_with(name + " is missing") ||
                  fault.ends_with(" lacks " + name + ", which it needs"))
          << name << ": " << fault;
    }
  }
  EXPECT_EQ(what_is_wrong_with({2, 1, 1, {{}}}), "a plan for 2 stages has lists for 1");
  EXPECT_EQ(what_is_wrong_with({0, 1, 1, {}}),
            "a plan for 0 stages with 1 chunks each, and for 1 microbatches");
  const PipelinePlan empty = {2, 1, 1, {{}, {}}};
  EXPECT_THAT([&] { check_plan(empty); },
              ::testing::ThrowsMessage<CheckError>("pipeline plan: stage 0: F0 is missing"));
}

TEST(ScheduleCheck, NothingIsThereTwiceOrElsewhere) {
  const PipelinePlan plan = plan_pipeline(Schedule::k1f1b, 2, 4), evaluation = plan_forwards(2, 2);
  expect_faults({
      {plan, added(0, {kForward, 0, 1}), "stage 0: F1 is there twice"},
      {plan, added(0, {kForward, 1, 0}), "stage 0: F0.c1 belongs to stage 1"},
      {plan, added(0, {kForward, 2, 0}), "stage 0: F0.c2 is of a chunk that does not exist"},
      {plan, added(0, {kForward, 0, 4}), "stage 0: F4 is of a microbatch that does not exist"},
      {plan, added(0, {kRecvActivation, 0, 0}),
       "stage 0: receive activation 0 has no other end: the model ends here"},
      {plan, added(0, {kInputBackward, 0, 0}), "stage 0: B0 is there whole and cut"},
      // An evaluation has no gradients.
      {evaluation, added(0, {kRecvGradient, 0, 0}),
       "stage 0: receive gradient 0 has no other end: stage 1: send gradient 0 is missing"},
      {evaluation, added(1, {kSendGradient, 1, 0}),
       "stage 1: send gradient 0 lacks B0, which it needs"},
      {evaluation, added(0, {kBackward, 0, 0}), "stage 0: B1 is missing"},
  });
}

TEST(ScheduleCheck, BackwardsAreInOrder) {
  EXPECT_EQ(fault_after(plan_pipeline(Schedule::kGpipe, 2, 4),
                        {swapped({kBackward, 0, 1}, {kBackward, 0, 2}),
                         swapped({kBackward, 1, 1}, {kBackward, 1, 2}),
                         swapped({kSendGradient, 1, 1}, {kSendGradient, 1, 2}),
                         swapped({kRecvGradient, 0, 1}, {kRecvGradient, 0, 2})}),
            "stage 0: B2 comes before B1: the chunk's gradients are summed out of order");
  const PipelinePlan cut = plan_pipeline(Schedule::kZeroBubble, 2, 4);
  EXPECT_THAT(fault_after(cut, {swapped({kWeightBackward, 1, 2}, {kWeightBackward, 1, 3})}),
              StartsWith("stage 1: W3 comes before W2"));
  // The whole backward of 3 between the halves of 2.
  const Change whole_3 = [](PipelinePlan& plan) {
    find(plan, {kInputBackward, 1, 3})->kind = kBackward;
    removed({kWeightBackward, 1, 3})(plan);
  };
  EXPECT_THAT(fault_after(cut, {whole_3}), StartsWith("stage 1: B3 comes before W2"));
  EXPECT_EQ(fault_after(cut, {whole_3, moved({kWeightBackward, 1, 2}, {kBackward, 1, 3})}), "");
}

// Of stages that wait, only those in the cycle are blamed, and all of these.
TEST(ScheduleCheck, DescribesTheCycleInWhichStagesWait) {
  expect_faults({
      // Neighbors both send first.
      {plan_pipeline(Schedule::k1f1b, 2, 4), moved({kRecvActivation, 1, 1}, {kForward, 1, 1}),
       "deadlock: stage 0 waits to send activation 1 to stage 1, which waits to send gradient 0 to "
       "stage 0"},
      // The warm-up of stage 0 is too short: it asks for its first gradient one forward too early.
      {plan_pipeline(Schedule::k1f1b, 3, 4), moved({kRecvGradient, 0, 0}, {kForward, 0, 1}),
       "deadlock: stage 0 waits to receive gradient 0 from stage 1, which waits to receive "
       "activation 1 from stage 0"},
      // Stage 0 waits as well, but for stages that would have gone on.
      {plan_pipeline(Schedule::k1f1b, 3, 4), moved({kRecvGradient, 1, 0}, {kForward, 1, 0}),
       "deadlock: stage 1 waits to receive gradient 0 from stage 2, which waits to receive "
       "activation 0 from stage 1"},
      // The last stage sends to the first one, so three can wait in a ring.
      {plan_pipeline(Schedule::kInterleaved, 3, 6, 2),
       moved({kRecvActivation, 3, 0}, {kForward, 0, 0}),
       "deadlock: stage 0 waits to receive activation 0.c3 from stage 2, which waits to receive "
       "activation 0.c2 from stage 1, which waits to receive activation 0.c1 from stage 0"},
  });
}

// On two stages with two chunks each, activations travel both ways, and only their order tells them
// apart.
TEST(ScheduleCheck, MessagesMatchByOrder) {
  EXPECT_EQ(fault_after(plan_pipeline(Schedule::kGpipe, 2, 4),
                        {swapped({kRecvActivation, 1, 0}, {kRecvActivation, 1, 1}),
                         moved({kForward, 1, 1}, {kForward, 1, 0}),
                         moved({kRecvActivation, 1, 0}, {kForward, 1, 0})}),
            "messages in different orders: stage 0 waits to send activation 0 to stage 1, which "
            "waits to receive activation 1 from stage 0");
  EXPECT_THAT(fault_after(plan_pipeline(Schedule::kInterleaved, 2, 4, 2),
                          {moved({kRecvActivation, 3, 0}, {kRecvActivation, 1, 1})}),
              AllOf(StartsWith("messages in different orders"),
                    HasSubstr("receive activation 0.c3 from stage 0")));
}

// ---- any change, against an execution ----

// Executes a plan as a transport without tags would: what meets, is exchanged, whatever it is
// called. Knows nothing of the checks. A result is the list of all that went into it.
class Execution {
 public:
  enum class Outcome { kRight, kWrong, kHangs };

  explicit Execution(const PipelinePlan& plan)
      : plan_(plan), next_(plan.stages.size(), 0), sums_(static_cast<std::size_t>(num_chunks())) {}

  // Right is what GPipe computes, with a stage for each chunk.
  Outcome run() {
    go_on();
    if (!is_right_) return Outcome::kWrong;
    for (std::size_t stage = 0; stage < next_.size(); ++stage) {
      if (next_[stage] < plan_.stages[stage].size()) return Outcome::kHangs;
    }
    Execution gpipe(plan_pipeline(Schedule::kGpipe, num_chunks(), plan_.num_microbatches));
    gpipe.go_on();
    return sums_ == gpipe.sums_ ? Outcome::kRight : Outcome::kWrong;
  }

 private:
  int num_chunks() const { return plan_.num_stages * plan_.chunks_per_stage; }

  void go_on() {
    for (bool goes_on = true; goes_on && is_right_;) {
      goes_on = false;
      for (std::size_t stage = 0; stage < next_.size(); ++stage) goes_on |= step(stage);
    }
  }

  // The other stage of a message, from its kind alone.
  static int direction(ActionKind kind) {
    return kind == kSendActivation || kind == kRecvGradient ? 1 : -1;
  }
  static bool is_send(ActionKind kind) { return kind == kSendActivation || kind == kSendGradient; }
  std::size_t partner(const Action& message) const {
    return static_cast<std::size_t>((message.chunk + direction(message.kind)) % plan_.num_stages);
  }

  bool step(std::size_t stage) {
    if (next_[stage] == plan_.stages[stage].size()) return false;
    const Action& action = plan_.stages[stage][next_[stage]];
    if (action.kind <= kWeightBackward) {
      compute(action);
    } else {
      const std::size_t other = partner(action);
      if (!is_send(action.kind) || next_[other] == plan_.stages[other].size()) return false;
      const Action& met = plan_.stages[other][next_[other]];
      if (met.kind <= kWeightBackward || is_send(met.kind) || partner(met) != stage) return false;
      transfer(action, met);
      ++next_[other];
    }
    ++next_[stage];
    return true;
  }

  // What a chunk of a microbatch has, by name.
  std::string& slot(const char* name, const Action& action) {
    return slots_[concat(name, action.chunk, "/", action.microbatch)];
  }

  std::string take(const char* name, const Action& action) {
    const std::string& value = slot(name, action);
    is_right_ &= !value.empty();
    return value;
  }

  void transfer(const Action& send, const Action& receive) {
    const std::string value = take(send.kind == kSendActivation ? "output" : "sent", send);
    slot(receive.kind == kRecvActivation ? "input" : "gradient", receive) = value;
  }

  void compute(const Action& action) {
    const auto [kind, chunk, microbatch] = action;
    if (kind == kForward) {
      const std::string input = chunk == 0 ? concat("m", microbatch) : take("input", action);
      slot("output", action) = concat(input, ">", chunk);
    } else if (kind == kWeightBackward) {
      sum(chunk, 1, take("half", action));
    } else {
      const std::string gradient =
          chunk == num_chunks() - 1 ? take("output", action) : take("gradient", action);
      const std::string result = concat(gradient, "<", chunk, "(", take("output", action), ")");
      slot("sent", action) = slot("half", action) = result;
      sum(chunk, 0, result);
      if (kind == kBackward) sum(chunk, 1, result);
    }
  }

  void sum(int chunk, std::size_t which, const std::string& term) {
    sums_[static_cast<std::size_t>(chunk)][which] += term + "\n";
  }

  PipelinePlan plan_;
  std::vector<std::size_t> next_;
  std::map<std::string, std::string> slots_;
  // Of a chunk, in input halves and in weight halves.
  std::vector<std::array<std::string, 2>> sums_;
  bool is_right_ = true;
};

std::vector<PipelinePlan> all_kinds_of_plans() {
  return {plan_pipeline(Schedule::kGpipe, 3, 3),
          plan_pipeline(Schedule::k1f1b, 2, 4),
          plan_pipeline(Schedule::k1f1b, 4, 5),
          plan_pipeline(Schedule::kZeroBubble, 3, 4),
          plan_pipeline(Schedule::kInterleaved, 2, 4, 2),
          plan_pipeline(Schedule::kInterleaved, 3, 4, 2)};
}

TEST(ScheduleCheck, PlansOfTheSchedulesRun) {
  for (const PipelinePlan& plan : all_kinds_of_plans()) {
    EXPECT_EQ(Execution(plan).run(), Execution::Outcome::kRight);
  }
}

// Exchanges neighbors in a plan's lists at random, up to 30 times. Whatever comes out, the check
// and the execution agree: accepted is right, "deadlock" hangs, and anything else goes wrong.
TEST(ScheduleCheck, AgreesWithAnExecutionAfterAnyExchange) {
  std::mt19937 random(8);
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  int num_accepted = 0, num_deadlocks = 0, num_out_of_order = 0, num_others = 0;
  for (const PipelinePlan& plan : all_kinds_of_plans()) {
    for (int trial = 0; trial < 40; ++trial) {
      PipelinePlan changed = plan;
      for (std::size_t left = 1 + below(30); left > 0; --left) {
        PipelinePlan next = changed;
        std::vector<Action>& actions = next.stages[below(next.stages.size())];
        const std::size_t i = below(actions.size() - 1);
        std::swap(actions[i], actions[i + 1]);
        const std::string fault = what_is_wrong_with(next);
        const Execution::Outcome outcome = Execution(next).run();
        if (fault.empty()) {
          ++num_accepted;
          ASSERT_EQ(outcome, Execution::Outcome::kRight);
          changed = next;  // and on from here
        } else if (fault.starts_with("deadlock")) {
          ++num_deadlocks;
          ASSERT_EQ(outcome, Execution::Outcome::kHangs) << fault;
        } else {
          ++(fault.starts_with("messages") ? num_out_of_order : num_others);
          ASSERT_NE(outcome, Execution::Outcome::kRight) << fault;
        }
      }
    }
  }
  for (const int count : {num_accepted, num_deadlocks, num_out_of_order, num_others}) {
    EXPECT_GT(count, 50) << "too few of one outcome to prove anything";
  }
}

}  // namespace
}  // namespace ladder
