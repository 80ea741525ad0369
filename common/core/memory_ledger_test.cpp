#include "common/core/memory_ledger.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rand.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "common/core/check.hpp"
#include "common/core/kept_blocks.hpp"
#include "common/testing/expect_throws.hpp"

namespace ladder {
namespace {

class MemoryLedgerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { install_memory_ledger(); }
  MemoryReading before_ = read_memory();

  std::int64_t grown(MemoryCategory category) {
    return read_memory().live(category) - before_.live(category);
  }
};

TEST_F(MemoryLedgerTest, CountsTensorsToTheByte) {
  const at::Tensor unlabelled = at::empty({10, 3});
  EXPECT_EQ(grown(MemoryCategory::kActivations), 120);
  {
    const MemoryScope scope(MemoryCategory::kParameters);
    const at::Tensor weights = at::empty({1001}, at::kDouble);
    EXPECT_EQ(grown(MemoryCategory::kParameters), 8008);
    {
      const MemoryScope inner(MemoryCategory::kOptimizer);
      const at::Tensor state = at::empty({5});
      EXPECT_EQ(grown(MemoryCategory::kOptimizer), 20);
    }
    EXPECT_EQ(grown(MemoryCategory::kOptimizer), 0);
    const at::Tensor more = at::empty({1});
    EXPECT_EQ(grown(MemoryCategory::kParameters), 8012);
  }
  EXPECT_EQ(grown(MemoryCategory::kParameters), 0);
  EXPECT_EQ(grown(MemoryCategory::kActivations), 120);
}

TEST_F(MemoryLedgerTest, FreesUnderTheCategoryThatAllocated) {
  at::Tensor gradients;
  {
    const MemoryScope scope(MemoryCategory::kGradients);
    gradients = at::empty({256});
  }
  EXPECT_EQ(grown(MemoryCategory::kGradients), 1024);
  const MemoryScope scope(MemoryCategory::kOptimizer);
  std::thread([&] { gradients.reset(); }).join();
  EXPECT_EQ(grown(MemoryCategory::kGradients), 0);
  EXPECT_EQ(grown(MemoryCategory::kOptimizer), 0);
}

TEST_F(MemoryLedgerTest, KnowsWhatATensorWasCountedUnder) {
  const MemoryScope scope(MemoryCategory::kGradients);
  const at::Tensor gradients = at::empty({256});
  const MemoryScope other(MemoryCategory::kOther, "ledger test");
  EXPECT_EQ(memory_category_of(gradients.narrow(0, 16, 5)), MemoryCategory::kGradients);
  EXPECT_EQ(memory_category_of(at::empty({1})), MemoryCategory::kOther);
  EXPECT_EQ(memory_category_of(at::empty({0})), std::nullopt);
}

TEST_F(MemoryLedgerTest, OtherGoesByName) {
  const MemoryScope scope(MemoryCategory::kOther, "ledger test");
  {
    const at::Tensor tensor = at::empty({3}, at::kByte);
    EXPECT_EQ(read_memory().other_bytes.at("ledger test"), 3);
    EXPECT_EQ(grown(MemoryCategory::kOther), 3);
  }
  EXPECT_EQ(read_memory().other_bytes.count("ledger test"), 0u);
  EXPECT_THROW(MemoryScope{MemoryCategory::kOther}, CheckError);  // requires a name
}

TEST_F(MemoryLedgerTest, PeaksRememberWhatIsGone) {
  reset_memory_peaks();
  const MemoryReading start = read_memory();
  { const at::Tensor transient = at::empty({1000}); }
  {
    const MemoryScope scope(MemoryCategory::kCommunication);
    const at::Tensor transient = at::empty({2000});
  }
  EXPECT_EQ(read_memory().peak_bytes - start.total_live_bytes, 8000);
  EXPECT_EQ(
      read_memory().peak(MemoryCategory::kActivations) - start.live(MemoryCategory::kActivations),
      4000);
  EXPECT_EQ(read_memory().total_live_bytes, start.total_live_bytes);
  reset_memory_peaks();
  EXPECT_EQ(read_memory().peak_bytes, start.total_live_bytes);
}

TEST_F(MemoryLedgerTest, ACapRefusesWhatGoesAboveIt) {
  const std::int64_t live = read_memory().total_live_bytes;
  set_memory_cap(live + 4000);
  {
    const at::Tensor fits = at::empty({1000});
    const MemoryScope scope(MemoryCategory::kGradients);
    expect_throws<CheckError>([] { at::empty({1}); }, {"4 bytes of gradients", "--memory-cap-mb"});
  }
  EXPECT_EQ(read_memory().total_live_bytes, live);  // what was refused is not counted
  set_memory_cap(0);
  EXPECT_EQ(at::empty({10000}).numel(), 10000);
}

TEST_F(MemoryLedgerTest,
       ComputesThroughOneDnnAndBackward) {  // kernels that free through raw_deleter
  {
    const at::Tensor x = at::rand({64, 64}).set_requires_grad(true);
    at::gelu(at::linear(x, at::rand({32, 64}), at::rand({32})), "tanh").sum().backward();
    EXPECT_TRUE(x.grad().defined());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(x.data_ptr()) % 64, 0u);
  }
  EXPECT_EQ(grown(MemoryCategory::kActivations), 0);
}

#ifndef LADDER_SANITIZE_ADDRESS  // it ends the process itself
TEST_F(MemoryLedgerTest, WhatTheMachineDoesNotHaveIsRefusedInOurWords) {
  expect_throws<CheckError>(
      [] { at::empty({std::int64_t{1} << 58}); },
      {"out of memory: 1152921504606846976 bytes of activations", "--dry-run"});
}
#endif

TEST(FormatBytes, PicksTheUnit) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(std::int64_t{3} << 30), "3.0 GiB");
}

// A step asks for the same sizes as the last one: what it frees waits for the next one, as long as
// no more is held than at the fullest moment.
TEST_F(MemoryLedgerTest, LargeBlocksAreUsedAgain) {
  constexpr std::int64_t kMiB = 1 << 18;  // elements
  at::Tensor a = at::empty({5 * kMiB}), b = at::empty({7 * kMiB});
  const void *first = a.const_data_ptr(), *second = b.const_data_ptr();
  a.reset();
  b.reset();
  b = at::empty({7 * kMiB});
  a = at::empty({5 * kMiB});
  EXPECT_EQ(a.const_data_ptr(), first);
  EXPECT_EQ(b.const_data_ptr(), second);
}

// The blocks that have been kept longest go first.
TEST(KeptBlocks, KeepNoMoreThanTheyMay) {
  static std::vector<void*> freed;
  KeptBlocks kept([](void* block) { freed.push_back(block); });
  int blocks[3];
  for (int& block : blocks) kept.keep(&block, 10);
  EXPECT_EQ(kept.bytes(), 30);
  EXPECT_EQ(kept.take(11), nullptr);
  EXPECT_EQ(kept.take(10), &blocks[2]);
  kept.keep(&blocks[2], 10);
  kept.shrink(19);
  EXPECT_EQ(freed, (std::vector<void*>{&blocks[0], &blocks[1]}));
  EXPECT_EQ(kept.bytes(), 10);
  kept.shrink(-1);
  EXPECT_EQ(kept.bytes(), 0);
}

}  // namespace
}  // namespace ladder
