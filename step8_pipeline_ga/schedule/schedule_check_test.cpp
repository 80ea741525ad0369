#include "step8_pipeline_ga/schedule/schedule_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <utility>

#include "common/testing/expect_throws.hpp"
#include "step8_pipeline_ga/schedule/schedule_simulation.hpp"

namespace ladder {
namespace {

using enum ActionKind;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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
  expect_throws<CheckError>([&] { check_plan(empty); }, {"pipeline plan: stage 0: F0 is missing"});
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

TEST(ScheduleCheck, NothingComesBeforeWhatItNeeds) {
  const PipelinePlan whole = plan_pipeline(Schedule::k1f1b, 3, 4),
                     cut = plan_pipeline(Schedule::kZeroBubble, 3, 4);
  expect_faults({
      {whole, moved({kForward, 1, 0}, {kRecvActivation, 1, 0}),
       "stage 1: F0 comes before receive activation 0, which it needs"},
      {whole, moved({kSendActivation, 1, 0}, {kForward, 1, 0}),
       "stage 1: send activation 0 comes before F0, which it needs"},
      {whole, moved({kBackward, 2, 0}, {kForward, 2, 0}),
       "stage 2: B0 comes before F0, which it needs"},
      {whole, moved({kBackward, 1, 0}, {kRecvGradient, 1, 0}),
       "stage 1: B0 comes before receive gradient 0, which it needs"},
      {whole, moved({kSendGradient, 1, 0}, {kBackward, 1, 0}),
       "stage 1: send gradient 0 comes before B0, which it needs"},
      {cut, moved({kSendGradient, 1, 0}, {kInputBackward, 1, 0}),
       "stage 1: send gradient 0 comes before I0, which it needs"},
      {cut, moved({kWeightBackward, 1, 0}, {kInputBackward, 1, 0}),
       "stage 1: W0 comes before I0, which it needs"},
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

// Computations alone, to which messages could be added.
PipelinePlan without_messages(PipelinePlan plan) {
  for (std::vector<Action>& actions : plan.stages) {
    std::erase_if(actions, [](const Action& action) { return is_message(action.kind); });
  }
  return plan;
}

TEST(ScheduleCheck, AnOrderOfComputationsNeedsNoMessages) {
  for (const Schedule schedule : {Schedule::kGpipe, Schedule::k1f1b, Schedule::kZeroBubble}) {
    EXPECT_EQ(what_is_wrong_with_order(without_messages(plan_pipeline(schedule, 3, 5))), "");
  }
  const PipelinePlan ring = without_messages(plan_pipeline(Schedule::kInterleaved, 3, 6, 2)),
                     plan = without_messages(plan_pipeline(Schedule::k1f1b, 3, 4));
  EXPECT_EQ(what_is_wrong_with_order(ring), "");
  const auto fault = [](PipelinePlan changed, const Change& change) {
    change(changed);
    return what_is_wrong_with_order(changed);
  };
  EXPECT_EQ(fault(plan, removed({kForward, 1, 2})), "stage 1: F2 is missing");
  EXPECT_EQ(fault(plan, moved({kBackward, 1, 0}, {kForward, 1, 0})),
            "stage 1: B0 comes before F0, which it needs");
  EXPECT_EQ(fault(plan, swapped({kBackward, 1, 0}, {kBackward, 1, 1})),
            "stage 1: B1 comes before B0: the chunk's gradients are summed out of order");
  // Forwards may come in any order; but here stage 1 begins with F1, for which stage 0 asks too late.
  const Change later = moved({kForward, 1, 0}, {kBackward, 1, 0});
  EXPECT_EQ(fault(plan, moved({kForward, 0, 0}, {kForward, 0, 2})), "");
  EXPECT_EQ(fault(plan, later), "");
  EXPECT_EQ(fault(plan,
                  [&](PipelinePlan& changed) {
                    moved({kBackward, 0, 0}, {kForward, 0, 1})(changed);
                    later(changed);
                  }),
            "deadlock: stage 0 waits for B0 of stage 1, which waits for F1 of stage 0");
  EXPECT_EQ(fault(ring, moved({kForward, 3, 0}, {kForward, 0, 0})),
            "deadlock: stage 0 waits for F0.c2 of stage 2, which waits for F0.c1 of stage 1, which "
            "waits for F0 of stage 0");
}

// What passes can be simulated; a deadlock cannot.
TEST(ScheduleCheck, JudgesShuffledOrders) {
  std::mt19937 random(65);
  int num_right = 0, num_stuck = 0;
  for (int i = 0; i < 2000; ++i) {
    const Schedule schedule = i % 2 == 0 ? Schedule::kGpipe : Schedule::kZeroBubble;
    PipelinePlan plan = without_messages(plan_pipeline(schedule, 3, 3));
    for (std::vector<Action>& actions : plan.stages) {
      const std::size_t last = actions.size() - 1;
      std::swap(actions[random() % last], actions[random() % last]);
    }
    const std::string fault = what_is_wrong_with_order(plan);
    if (fault.empty()) {
      EXPECT_NO_THROW(simulate(plan, {}));
      ++num_right;
    }
    if (!fault.starts_with("deadlock")) continue;
    EXPECT_THROW(simulate(plan, {}), CheckError) << fault;
    ++num_stuck;
  }
  EXPECT_GT(num_right, 50);
  EXPECT_GT(num_stuck, 50);
}

TEST(ScheduleCheck, KnowsWhatAComputationAwaits) {
  const PipelinePlan whole = plan_pipeline(Schedule::k1f1b, 3, 4),
                     cut = plan_pipeline(Schedule::kZeroBubble, 3, 4);
  EXPECT_EQ(awaited_by(whole, {kForward, 0, 2}), std::nullopt);
  EXPECT_EQ(awaited_by(whole, {kForward, 2, 2}), (Action{kForward, 1, 2}));
  EXPECT_EQ(awaited_by(whole, {kBackward, 2, 2}), std::nullopt);
  EXPECT_EQ(awaited_by(whole, {kBackward, 1, 2}), (Action{kBackward, 2, 2}));
  EXPECT_EQ(awaited_by(cut, {kInputBackward, 0, 2}), (Action{kInputBackward, 1, 2}));
  EXPECT_EQ(awaited_by(cut, {kWeightBackward, 0, 2}), std::nullopt);
}

}  // namespace
}  // namespace ladder
