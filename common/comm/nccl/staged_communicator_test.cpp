// What staging adds to the contract of communicators, for which comm_test --staged runs all tests.
#include "common/comm/nccl/staged_communicator.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "common/comm/contract/rank_values.hpp"
#include "common/comm/self_communicator.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/rank_test.hpp"

namespace ladder {
namespace {

class Staged : public RankTest {
 protected:
  StagedCommunicator staged_{comm_.split(0, 0), StagedCommunicator::Staged::kEverything};
};

// The caller's tensor is the device's: only wait() or test() writes to it.
TEST_ON_RANKS(Staged, WritesTheResultInWait) {
  const at::Tensor sum = values_of(rank_, 1001, at::kFloat);
  const auto version = sum._version();
  const WorkPtr work = staged_.all_reduce(sum);
  comm_.barrier();
  EXPECT_TRUE(bits_equal(sum, values_of(rank_, 1001, at::kFloat)));
  work->wait();
  EXPECT_TRUE(bits_equal(sum, fold_of_all(size_, 1001, at::kFloat)));
  EXPECT_EQ(sum._version(), version);
}

TEST_ON_PROCESSES(Staged, HoldsHostMemoryWhileTheWorkLives) {
  install_memory_ledger();
  StagedCommunicator alone(std::make_unique<SelfCommunicator>(),
                           StagedCommunicator::Staged::kEverything);
  const at::Tensor shard = at::full({1000}, rank_, at::kFloat), full = at::zeros({1000});
  const auto held = [] { return read_memory().live(MemoryCategory::kCommunication); };
  const std::int64_t before = held();
  WorkPtr work = alone.all_gather(shard, full);
  EXPECT_EQ(held() - before, 4000);
  work->wait();
  EXPECT_TRUE(bits_equal(full, shard));
  work.reset();
  EXPECT_EQ(held(), before);
}

}  // namespace
}  // namespace ladder
