#include "step9_diloco/elastic/unreachable.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ladder {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A worker whose epoch is 100 + its number, and the workers that it misses.
WorkerStatus seen(int worker, const std::vector<int>& missed, std::int64_t outer_steps = 0) {
  WorkerStatus status = {.beat = {.worker = worker,
                                  .epoch = 100 + static_cast<std::uint64_t>(worker),
                                  .outer_steps = outer_steps}};
  for (const int other : missed)
    status.beat.missed.push_back(100 + static_cast<std::uint64_t>(other));
  return status;
}

TEST(Unreachable, NobodyIsLeftOutIfAllAreHeard) {
  EXPECT_THAT(unreachable_workers({}, {}), IsEmpty());
  EXPECT_THAT(unreachable_workers({seen(0, {}), seen(1, {}), seen(2, {})}, {}), IsEmpty());
}

TEST(Unreachable, OneWhoseValuesReachNobody) {
  EXPECT_THAT(unreachable_workers({seen(0, {1}), seen(1, {}), seen(2, {1})}, {}), ElementsAre(1));
}

TEST(Unreachable, OneThatHearsNobody) {
  EXPECT_THAT(unreachable_workers({seen(0, {1, 2}), seen(1, {}), seen(2, {})}, {}), ElementsAre(0));
}

TEST(Unreachable, TwoThatNobodyHears) {
  EXPECT_THAT(
      unreachable_workers(
          {seen(0, {1, 3}), seen(1, {3}), seen(2, {1, 3}), seen(3, {1}), seen(4, {1, 3})}, {}),
      ElementsAre(1, 3));
}

TEST(Unreachable, OfATieTheLast) {
  EXPECT_THAT(unreachable_workers({seen(0, {}), seen(1, {0})}, {}), ElementsAre(1));
  EXPECT_THAT(unreachable_workers({seen(0, {}), seen(1, {2}), seen(2, {1})}, {}), ElementsAre(2));
}

TEST(Unreachable, OfTwoHalvesOneGoesOn) {
  EXPECT_THAT(
      unreachable_workers({seen(0, {2, 3}), seen(1, {2, 3}), seen(2, {0, 1}), seen(3, {0, 1})}, {}),
      ElementsAre(2, 3));
}

TEST(Unreachable, ANewProcessGetsAnotherChance) {
  WorkerStatus restarted = seen(1, {});
  restarted.beat.epoch = 7;
  EXPECT_THAT(unreachable_workers({seen(0, {1}), restarted, seen(2, {1})}, {}), IsEmpty());
}

TEST(Unreachable, WhoIsLostOrHungLeavesNobodyOut) {
  WorkerStatus lost = seen(0, {1}), hung = seen(0, {1});
  lost.beat_age_s = hung.progress_age_s = 1.1;
  EXPECT_THAT(unreachable_workers({lost, seen(1, {})}, {}), IsEmpty());
  EXPECT_THAT(unreachable_workers({hung, seen(1, {})}, {}), IsEmpty());
}

// Two that are behind miss the only one that knows the last outer step. Later it is behind.
TEST(Unreachable, OneThatIsAheadIsNotLeftOut) {
  EXPECT_THAT(unreachable_workers({seen(0, {2}, 6), seen(1, {2}, 6), seen(2, {}, 7)}, {}),
              ElementsAre(0, 1));
  EXPECT_THAT(unreachable_workers({seen(0, {2}, 8), seen(1, {2}, 8), seen(2, {0, 1}, 7)}, {}),
              ElementsAre(2));
  WorkerStatus newer = seen(2, {}, 5);
  newer.beat.last_quorum = {1, 1};
  EXPECT_THAT(unreachable_workers({seen(0, {2}, 6), seen(1, {2}, 6), newer}, {}),
              ElementsAre(0, 1));
}

TEST(MissedRounds, OnlyRoundsInARowCount) {
  const Quorum quorum = {.members = {{.worker = 0, .epoch = 100}, {.worker = 1, .epoch = 101}}};
  const Quorum without = {.members = {{.worker = 0, .epoch = 100}}};
  MissedRounds missed;
  for (const auto& missing : std::vector<std::vector<int>>{{1}, {1}, {}, {1}, {1}}) {
    missed.note(quorum, missing);
    EXPECT_THAT(missed.epochs(), IsEmpty());
  }
  missed.note(quorum, {1});
  EXPECT_THAT(missed.epochs(), ElementsAre(101));
  missed.note(without, {});
  EXPECT_THAT(missed.epochs(), ElementsAre(101));
}

}  // namespace
}  // namespace ladder
