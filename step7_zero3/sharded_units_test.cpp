#include "step7_zero3/sharded_units.hpp"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>

#include "common/comm/self_communicator.hpp"
#include "common/core/trace.hpp"

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

}  // namespace
}  // namespace ladder
