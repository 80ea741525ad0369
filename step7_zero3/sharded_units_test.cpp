// On 1, 2, 3 and 4 ranks.
#include "step7_zero3/sharded_units.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <thread>

#include "common/comm/contract/rank_values.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/trace.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/rank_test.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class ShardedUnitsTest : public RankTest {
 protected:
  ShardedUnitsTest() {
    for (const Unit& unit : units_) sharded_.add(unit);
  }

  // The same on all ranks. "one" and "frozen" are shorter than there are ranks.
  static std::vector<Unit> make_units() {
    const auto leaf = [](at::IntArrayRef shape, std::uint64_t seed) {
      const std::int64_t numel = c10::multiply_integers(shape);
      return values_of(0, numel, at::kFloat, seed).view(shape).set_requires_grad(true);
    };
    return {{"embedding", {{"wte", leaf({33, 7}, 1)}}},
            {"block",
             {{"weight", leaf({16, 16}, 2)}, {"one", leaf({1}, 3)}, {"large", leaf({70, 70}, 4)}}},
            {"head", {{"gain", leaf({5}, 5)}, {"frozen", leaf({2}, 6).detach()}}}};
  }
  static std::vector<NamedTensor> tensors_of(const std::vector<Unit>& units) {
    std::vector<NamedTensor> all;
    for (const Unit& unit : units) all.insert(all.end(), unit.tensors.begin(), unit.tensors.end());
    return all;
  }

  std::int64_t numel_of(std::size_t unit) const { return plan_.layout.units[unit].numel; }
  // Whether this rank holds so many bytes in addition to the shards. Threads cannot tell.
  ::testing::AssertionResult holds(std::int64_t wanted) const {
    const std::int64_t whole_bytes = parameter_bytes() - before_ - 4 * plan_.numel;
    if (!ranks_are_processes() || whole_bytes == wanted) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << whole_bytes << " bytes instead of " << wanted;
  }
  static std::int64_t parameter_bytes() {
    install_memory_ledger();
    return read_memory().live(MemoryCategory::kParameters);
  }
  Traffic sent_since(const Traffic& before) const {
    Traffic sent = comm_.traffic();
    return sent -= before;
  }
  void expect_values_of_all(double factor) {
    for (std::size_t u = 0; u < units_.size(); ++u) {
      sharded_.unshard(u);
      for (std::size_t t = 0; t < units_[u].tensors.size(); ++t) {
        const auto& [name, tensor] = units_[u].tensors[t];
        EXPECT_TRUE(bits_equal(tensor, originals_[u].tensors[t].tensor * factor)) << name;
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % 64, 0u) << name;
      }
      sharded_.reshard(u);
    }
  }

  const std::int64_t before_ = parameter_bytes();
  const std::vector<Unit> originals_ = make_units();
  const std::vector<Unit> units_ = make_units();
  const ShardPlan plan_ = plan_shards(plan_flat_layout(units_, shard_multiple(comm_.size())),
                                      comm_.size(), comm_.rank());
  ShardedUnits sharded_ = ShardedUnits(plan_, comm_);
};

TEST_ON_RANKS(ShardedUnitsTest, KeepsItsOwnSliceOfEachUnit) {
  const at::Tensor flat = at::zeros({plan_.layout.numel});
  const std::vector<NamedTensor> originals = tensors_of(originals_);
  for (std::size_t t = 0; t < originals.size(); ++t) {
    const FlatTensor& place = plan_.layout.tensors[t];
    flat.narrow(0, place.start, place.numel).copy_(originals[t].tensor.detach().flatten());
    EXPECT_EQ(sharded_.leaves()[t].name, originals[t].name);
  }
  EXPECT_TRUE(bits_equal(sharded_.param_shard(), at::cat(plan_.slices_of_full(flat))));
  EXPECT_EQ(sharded_.num_units(), 3u);
  EXPECT_TRUE(holds(0));
}

TEST_ON_RANKS(ShardedUnitsTest, BitsComeBackAsOftenAsWanted) {
  expect_values_of_all(1);
  expect_values_of_all(1);
  sharded_.param_shard().mul_(-2);  // an optimizer's step on all ranks
  expect_values_of_all(-2);
}

TEST_ON_RANKS(ShardedUnitsTest, TakesAndGivesBackExactlyTheUnitsBytes) {
  for (std::size_t u = 0; u < units_.size(); ++u) {
    for (int again = 0; again < 2; ++again) {
      sharded_.start_unshard(u);
      EXPECT_TRUE(holds(4 * numel_of(u)));
    }
    sharded_.unshard(u);
    EXPECT_TRUE(holds(4 * numel_of(u)));
    sharded_.reshard(u);
    EXPECT_TRUE(holds(0));
    for (const NamedTensor& named : units_[u].tensors)
      EXPECT_EQ(named.tensor.storage().nbytes(), 0u) << named.name;
    sharded_.reshard(u);
    EXPECT_TRUE(holds(0));
  }
  for (std::size_t u = 0; u < units_.size(); ++u) sharded_.unshard(u);
  EXPECT_TRUE(holds(4 * plan_.layout.numel));
  sharded_.reshard_all();
  EXPECT_TRUE(holds(0));
}

TEST_ON_RANKS(ShardedUnitsTest, OneGatherMakesAUnitWholeHoweverOftenItIsAskedFor) {
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const Traffic before = comm_.traffic();
    sharded_.start_unshard(u);
    sharded_.start_unshard(u);
    sharded_.unshard(u);
    sharded_.unshard(u);
    sharded_.start_unshard(u);
    sharded_.reshard(u);
    sharded_.reshard(u);
    EXPECT_EQ(sent_since(before), all_gather_traffic(numel_of(u), 4, comm_.size(), comm_.rank()));
  }
}

// A unit that was gathered ahead but is not used after all; several in flight, waited for in
// another order.
TEST_ON_RANKS(ShardedUnitsTest, GathersMayBeDroppedOrWaitedForInAnyOrder) {
  sharded_.start_unshard(0);
  sharded_.start_unshard(1);
  sharded_.reshard(1);
  sharded_.reshard(0);
  EXPECT_TRUE(holds(0));
  for (const std::size_t u : {1u, 0u, 2u}) sharded_.start_unshard(u);
  for (const std::size_t u : {2u, 0u, 1u}) sharded_.unshard(u);
  EXPECT_TRUE(bits_equal(units_[1].tensors[2].tensor, originals_[1].tensors[2].tensor));
  sharded_.reshard_all();
  expect_values_of_all(1);
}

// Between forward and backward the memory is freed, and other code writes to it.
TEST_ON_RANKS(ShardedUnitsTest, WhatAutogradHasSavedSeesTheNewMemory) {
  const at::Tensor x = values_of(7, 32, at::kFloat).view({2, 16});
  const auto loss_of = [&](const std::vector<Unit>& units) {
    const auto& block = units[1].tensors;
    const at::Tensor y = at::mm(x, block[0].tensor) * block[1].tensor;
    return at::mm(y.tanh(), block[0].tensor.t()).square().sum();
  };
  sharded_.unshard(1);
  const auto version = units_[1].tensors[0].tensor._version();
  const at::Tensor loss = loss_of(units_);
  sharded_.reshard(1);
  const at::Tensor squatter =
      at::full({numel_of(1)}, std::numeric_limits<float>::quiet_NaN(), at::kFloat);
  sharded_.unshard(1);
  loss.backward();
  sharded_.reshard(1);
  loss_of(originals_).backward();
  for (const std::size_t t : {0u, 1u}) {
    EXPECT_TRUE(
        bits_equal(units_[1].tensors[t].tensor.grad(), originals_[1].tensors[t].tensor.grad()));
  }
  EXPECT_EQ(units_[1].tensors[0].tensor._version(), version);
}

// As on a GPU, where backward runs on a thread of autograd.
TEST_ON_RANKS(ShardedUnitsTest, TracesTheGathersOfAnotherThread) {
  TraceLog log;
  const TraceScope scope(&log);
  ShardedUnits sharded(plan_, comm_);
  for (const Unit& unit : make_units()) sharded.add(unit);
  std::thread([&] { sharded.unshard(1); }).join();
  const auto is_gather = [](const TracedSpan& span) { return std::string(span.name) == "unshard"; };
  EXPECT_EQ(std::count_if(log.spans().begin(), log.spans().end(), is_gather), 1);
}

TEST_ON_RANKS(ShardedUnitsTest, RefusesWhatThePlanDoesNotExpect) {
  const auto unexpected = [](const std::string& name) {
    return ThrowsMessage<CheckError>(AllOf(HasSubstr("'" + name + "'"), HasSubstr("next one")));
  };
  EXPECT_THAT([&] { sharded_.add(make_units()[0]); }, unexpected("embedding"));  // one too many
  ShardedUnits other(plan_, comm_);
  EXPECT_THAT([&] { other.add(make_units()[1]); }, unexpected("block"));
  const Unit in_double = {"embedding", {{"wte", at::ones({33, 7}, at::kDouble)}}};
  EXPECT_THAT([&] { other.add(in_double); },
              ThrowsMessage<CheckError>(AllOf(HasSubstr("'wte'"), HasSubstr("Double"))));
}

}  // namespace
}  // namespace ladder
