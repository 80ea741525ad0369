#include "common/comm/world.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "common/core/check.hpp"

namespace ladder {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Each test starts without a launcher, whatever started the test program.
class WorldTest : public ::testing::Test {
 protected:
  void SetUp() override { forget_launchers(); }
  void TearDown() override { forget_launchers(); }
  static void forget_launchers() {
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_SIZE", "PMI_RANK",
                             "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_NTASKS"}) {
      unsetenv(name);
    }
  }
};

TEST_F(WorldTest, WithoutALauncherThereIsOneRank) {
  EXPECT_EQ(launched_ranks(), 1);
  EXPECT_EQ(launched_rank(), 0);
  World world(Transport::kAuto);
  EXPECT_EQ(world.transport(), Transport::kSelf);
  EXPECT_EQ(world.comm().size(), 1);
  EXPECT_EQ(world.local_rank(), 0);
}

TEST_F(WorldTest, ReadsTheLaunchersEnvironment) {
  setenv("SLURM_NTASKS", "16", 1);  // an allocation, not a launch
  setenv("SLURM_PROCID", "0", 1);
  EXPECT_EQ(launched_ranks(), 1);
  setenv("SLURM_STEP_NUM_TASKS", "8", 1);
  setenv("SLURM_PROCID", "5", 1);
  EXPECT_EQ(launched_ranks(), 8);
  EXPECT_EQ(launched_rank(), 5);
  setenv("PMI_SIZE", "4", 1);
  setenv("PMI_RANK", "1", 1);
  EXPECT_EQ(launched_ranks(), 4);
  setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
  setenv("OMPI_COMM_WORLD_RANK", "2", 1);
  EXPECT_EQ(launched_ranks(), 3);
  EXPECT_EQ(launched_rank(), 2);
}

TEST_F(WorldTest, RefusesAnEnvironmentThatIsNoNumber) {
  setenv("PMI_SIZE", "two", 1);
  EXPECT_THAT([] { launched_ranks(); }, ThrowsMessage<UsageError>(HasSubstr("PMI_SIZE is 'two'")));
  EXPECT_THAT([] { launched_rank(); }, ThrowsMessage<UsageError>(HasSubstr("set no PMI_RANK")));
}

TEST_F(WorldTest, SelfIsRefusedForSeveralRanks) {
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  EXPECT_THAT([] { World world(Transport::kSelf); },
              ThrowsMessage<UsageError>(HasSubstr("the launcher started 2")));
}

TEST_F(WorldTest, TransportsHaveNames) {
  for (const auto transport : {Transport::kAuto, Transport::kSelf, Transport::kMpi}) {
    EXPECT_EQ(parse_transport(to_string(transport)), transport);
  }
  EXPECT_THAT([] { parse_transport("gloo"); },
              ThrowsMessage<UsageError>(HasSubstr("'gloo', it must be auto, self or mpi")));
}

TEST_F(WorldTest, AbortEndsTheProcessWithTheCode) {
  World world(Transport::kSelf);
  EXPECT_EXIT(world.abort(7), ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace ladder
