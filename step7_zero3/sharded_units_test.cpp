#include "step7_zero3/sharded_units.hpp"

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>

#include "common/comm/self_communicator.hpp"
#include "common/core/check.hpp"
#include "common/core/trace.hpp"
#include "common/testing/recording_communicator.hpp"

namespace ladder {
namespace {

std::vector<Unit> two_units() {
  const auto leaf = [](std::int64_t numel) { return at::ones({numel}).set_requires_grad(true); };
  return {{"embedding", {{"wte", leaf(231)}}}, {"head", {{"gain", leaf(5)}, {"shift", leaf(5)}}}};
}

ShardPlan plan_of_two_units() {
  return plan_shards(plan_flat_layout(two_units(), shard_multiple(1)), 1, 0);
}

// As on a GPU, where backward runs on a thread of autograd.
TEST(ShardedUnits, TracesTheGathersOfAnotherThread) {
  TraceLog log;
  const TraceScope scope(&log);
  SelfCommunicator alone;
  ShardedUnits sharded(plan_of_two_units(), alone);
  for (const Unit& unit : two_units()) sharded.add(unit);
  std::thread([&] { sharded.unshard(1); }).join();
  const auto is_gather = [](const TracedSpan& span) { return std::string(span.name) == "unshard"; };
  EXPECT_EQ(std::count_if(log.spans().begin(), log.spans().end(), is_gather), 1);
}

// It is gathered ahead, but not used after all.
TEST(ShardedUnits, WaitsForAGatherBeforeItTakesItsMemoryAway) {
  SelfCommunicator alone, agreements;
  RecordingCommunicator comm(alone, agreements);
  comm.set_network(Network::kSlow);
  ShardedUnits sharded(plan_of_two_units(), comm);
  for (const Unit& unit : two_units()) sharded.add(unit);
  sharded.start_unshard(1);
  sharded.reshard(1);
  EXPECT_EQ(comm.recording().num_started, 1);
  EXPECT_EQ(comm.recording().num_waited_for, 1);
}

TEST(ShardedUnits, RefusesWhatThePlanDoesNotExpect) {
  SelfCommunicator alone;
  ShardedUnits sharded(plan_of_two_units(), alone);
  const auto expect_refused = [](ShardedUnits& units, const Unit& unit, const char* name,
                                 const char* reason) {
    EXPECT_THAT([&] { units.add(unit); },
                ::testing::ThrowsMessage<CheckError>(
                    ::testing::AllOf(::testing::HasSubstr(name), ::testing::HasSubstr(reason))));
  };
  expect_refused(sharded, two_units()[1], "'head'", "next one");
  for (const Unit& unit : two_units()) sharded.add(unit);
  expect_refused(sharded, two_units()[0], "'embedding'", "next one");  // one too many
  ShardedUnits other(plan_of_two_units(), alone);
  expect_refused(other, {"embedding", {{"wte", at::ones({231}, at::kDouble)}}}, "'wte'", "Double");
}

}  // namespace
}  // namespace ladder
