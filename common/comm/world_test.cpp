#include "common/comm/world.hpp"
#include "common/comm/paced_communicator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/launcher_environment.hpp"
#include "common/comm/self_communicator.hpp"
#include "common/comm/store/key_value_store.hpp"
#include "common/comm/store/store_communicator.hpp"
#include "common/comm/threads/run_as_threads.hpp"
#include "common/core/check.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/program.hpp"

namespace ladder {
namespace {

// Each test starts without a launcher, even if a launcher started the test program.
class WorldTest : public ::testing::Test {
 protected:
  void SetUp() override { forget_launchers(); }
  void TearDown() override { forget_launchers(); }
  static void forget_launchers() {
    for (const std::string& name :
         words("OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_LOCAL_RANK "
               "OMPI_COMM_WORLD_LOCAL_SIZE MPI_LOCALNRANKS PMI_SIZE PMI_RANK MPI_LOCALRANKID "
               "SLURM_STEP_NUM_TASKS SLURM_PROCID SLURM_LOCALID SLURM_NTASKS TORCHELASTIC_RUN_ID "
               "WORLD_SIZE RANK LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT "
               "TORCHELASTIC_USE_AGENT_STORE TORCHELASTIC_RESTART_COUNT"))
      unsetenv(name.c_str());
  }
};

TEST_F(WorldTest, WithoutALauncherThereIsOneRank) {
  EXPECT_EQ(launched_ranks(), 1);
  EXPECT_EQ(launched_rank(), 0);
  EXPECT_EQ(launched_local_rank(), 0);
  EXPECT_EQ(launched_local_ranks(), 1);
  EXPECT_EQ(launcher(), Launcher::kNone);
  EXPECT_THROW(torchrun_meeting_point(), CheckError);
  World world(Transport::kAuto);
  EXPECT_EQ(world.transport(), Transport::kSelf);
  EXPECT_EQ(world.comm().size(), 1);
  EXPECT_EQ(world.local_rank(), 0);
}

// `text` has the form NAME=VALUE ….
void set_variables(const std::string& text) {
  for (const std::string& set : words(text)) {
    const std::size_t mark = set.find('=');
    setenv(set.substr(0, mark).c_str(), set.substr(mark + 1).c_str(), 1);
  }
}

// What is set, one after the other, and what it says.
struct Environment {
  std::string variables;  // besides those before
  Launcher launcher;
  int ranks, rank, local_rank;
};

void expect_launched(const std::vector<Environment>& environments) {
  for (const Environment& wanted : environments) {
    SCOPED_TRACE(wanted.variables);
    set_variables(wanted.variables);
    EXPECT_EQ(launcher(), wanted.launcher);
    EXPECT_EQ(launched_ranks(), wanted.ranks);
    EXPECT_EQ(launched_rank(), wanted.rank);
    EXPECT_EQ(launched_local_rank(), wanted.local_rank);
  }
}

// An allocation of Slurm is not a launch, and srun --mpi=pmi2 leaves the local rank to Slurm's
// variable.
TEST_F(WorldTest, ReadsTheLaunchersEnvironment) {
  expect_launched(
      {{"SLURM_NTASKS=16 SLURM_PROCID=0", Launcher::kNone, 1, 0, 0},
       {"SLURM_STEP_NUM_TASKS=8 SLURM_PROCID=5 SLURM_LOCALID=1", Launcher::kSlurm, 8, 5, 1},
       {"PMI_SIZE=4 PMI_RANK=3", Launcher::kPmi, 4, 3, 1},
       {"MPI_LOCALRANKID=2", Launcher::kPmi, 4, 3, 2},
       {"OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_LOCAL_RANK=0",
        Launcher::kOpenMpi, 3, 2, 0}});
  EXPECT_EQ(launched_local_ranks(), 1);  // of older versions, which do not say
  setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
  EXPECT_EQ(launched_local_ranks(), 2);
}

// What is left over in a user's shell does not count. Under an mpirun that starts one torchrun per
// machine, torchrun's numbers do.
TEST_F(WorldTest, ReadsTorchrunsEnvironment) {
  expect_launched({{"WORLD_SIZE=9 RANK=8 LOCAL_RANK=7", Launcher::kNone, 1, 0, 0},
                   {"OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_RANK=0",
                    Launcher::kOpenMpi, 2, 1, 0},
                   {"TORCHELASTIC_RUN_ID=none WORLD_SIZE=4 RANK=3 LOCAL_RANK=1",
                    Launcher::kTorchrun, 4, 3, 1}});
}

TEST_F(WorldTest, KnowsWhereTorchrunsRanksMeet) {
  set_variables("TORCHELASTIC_RUN_ID=none WORLD_SIZE=1");
  expect_throws<UsageError>([] { torchrun_meeting_point(); }, {"but no MASTER_PORT"});
  for (const char* port : {"0", "65536", "29500x"}) {
    setenv("MASTER_PORT", port, 1);
    expect_throws<UsageError>([] { torchrun_meeting_point(); },
                              {concat("MASTER_PORT is '", port, "'")});
  }
  setenv("MASTER_PORT", "29500", 1);
  expect_throws<UsageError>([] { torchrun_meeting_point(); }, {"but no MASTER_ADDR"});
  setenv("MASTER_ADDR", "node1", 1);
  EXPECT_EQ(torchrun_meeting_point().address, "node1");
  EXPECT_EQ(torchrun_meeting_point().port, 29500);
  EXPECT_FALSE(torchrun_meeting_point().has_store);
  EXPECT_EQ(torchrun_meeting_point().num_restarts, 0);
  set_variables("TORCHELASTIC_USE_AGENT_STORE=False TORCHELASTIC_RESTART_COUNT=2");
  EXPECT_FALSE(torchrun_meeting_point().has_store);
  EXPECT_EQ(torchrun_meeting_point().num_restarts, 2);
  setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  EXPECT_TRUE(torchrun_meeting_point().has_store);
}

TEST_F(WorldTest, MpiAndSelfAreRefusedForTorchrunsRanks) {
  set_variables("TORCHELASTIC_RUN_ID=none WORLD_SIZE=2");
  expect_throws<UsageError>([] { World world(Transport::kMpi); },
                            {"torchrun started 2 ranks without MPI", "mpirun or srun"});
  expect_throws<UsageError>([] { World world(Transport::kSelf); }, {"the launcher started 2"});
  expect_throws<UsageError>([] { World world(Transport::kAuto); }, {"but no MASTER_PORT"});
  setenv("WORLD_SIZE", "1", 1);  // one rank needs no store
  World world(Transport::kAuto);
  EXPECT_EQ(world.transport(), Transport::kSelf);
}

TEST_F(WorldTest, TheStoreIsTorchruns) {
  setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
  expect_throws<UsageError>([] { World world(Transport::kStore); },
                            {"scripts/cluster/torchrun.sh"});
  KeyValueStore torchruns("localhost", 0, /*is_server=*/true, 10);
  set_variables(
      concat("WORLD_SIZE=1 RANK=0 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 "
             "TORCHELASTIC_RUN_ID=none TORCHELASTIC_USE_AGENT_STORE=True "
             "TORCHELASTIC_RESTART_COUNT=3 MASTER_ADDR=localhost MASTER_PORT=",
             torchruns.port()));
  World first(Transport::kStore);
  World second(Transport::kStore);
  EXPECT_EQ(second.transport(), Transport::kStore);
  EXPECT_EQ(second.local_rank(), 0);
  EXPECT_EQ(all_reduce_sum(3.0, second.comm()), 3.0);
  EXPECT_EQ(torchruns.add("ladder/3/worlds of 0", 0), 2) << "in which each has keys of its own";
  EXPECT_EXIT(second.abort(7), ::testing::ExitedWithCode(7), "");
  EXPECT_TRUE(torchruns.has(store_failure_key("ladder/3/2/")));
}

// Two machines with one rank and two, or one with all three.
TEST_F(WorldTest, KnowsWhichMachineEachOfTorchrunsRanksIsOn) {
  using Machines = std::vector<int>;
  KeyValueStore torchruns("localhost", 0, /*is_server=*/true, 10);
  set_variables(concat("WORLD_SIZE=3 TORCHELASTIC_RUN_ID=none TORCHELASTIC_USE_AGENT_STORE=True ",
                       "MASTER_ADDR=localhost MASTER_PORT=", torchruns.port()));
  const auto expect_machines = [](const Machines& wanted, const std::vector<std::string>& ranks) {
    std::vector<std::unique_ptr<World>> worlds;
    for (const std::string& variables : ranks) {
      set_variables(variables);
      worlds.push_back(std::make_unique<World>(Transport::kAuto));
    }
    run_as_threads(3, [&](Communicator& thread) {
      World& world = *worlds[static_cast<std::size_t>(thread.rank())];
      EXPECT_EQ(world.machine_of_rank(), wanted);
      const bool is_one = wanted.back() == 0;
      EXPECT_EQ(world.comm().traffic()[CommOp::kAllGather].calls, is_one ? 0 : 1);
    });
  };
  expect_machines({0, 1, 1}, {"RANK=0 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1",
                              "RANK=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2", "RANK=2 LOCAL_RANK=1"});
  expect_machines({0, 0, 0}, {"RANK=0 LOCAL_RANK=0 LOCAL_WORLD_SIZE=3", "RANK=1 LOCAL_RANK=1",
                              "RANK=2 LOCAL_RANK=2"});
}

TEST_F(WorldTest, RefusesAnEnvironmentThatIsNoNumber) {
  setenv("PMI_SIZE", "two", 1);
  expect_throws<UsageError>([] { launched_ranks(); }, {"PMI_SIZE is 'two'"});
  expect_throws<UsageError>([] { launched_rank(); }, {"but no PMI_RANK"});
  expect_throws<UsageError>([] { launched_local_rank(); }, {"but no MPI_LOCALRANKID"});
}

TEST_F(WorldTest, ALinkPacesTheCommunicator) {
  World world(Transport::kAuto, Link{.latency_us = 1e6, .gbit_per_s = 1});
  EXPECT_NE(dynamic_cast<PacedCommunicator*>(&world.comm()), nullptr);
  EXPECT_EQ(all_reduce_sum(3.0, world.comm()), 3.0) << "one rank sends nothing";
  World without(Transport::kAuto, Links());
  EXPECT_EQ(dynamic_cast<PacedCommunicator*>(&without.comm()), nullptr);
}

TEST_F(WorldTest, MayBeOfAGivenGroup) {
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);  // the launcher is ignored
  setenv("OMPI_COMM_WORLD_RANK", "1", 1);
  auto group = std::make_unique<SelfCommunicator>();
  Communicator* const given = group.get();
  World world(std::move(group), Transport::kSelf);
  EXPECT_EQ(&world.comm(), given);
  EXPECT_EQ(world.transport(), Transport::kSelf);
  EXPECT_EQ(world.local_rank(), 0);
  EXPECT_THROW(World(nullptr, Transport::kSelf), CheckError);
  EXPECT_THROW(World(std::make_unique<SelfCommunicator>(), Transport::kAuto), CheckError);
}

TEST_F(WorldTest, OfThreadsKnowsThatItIs) {
  EXPECT_THROW(World{Transport::kThreads}, CheckError);  // who would start them?
  run_as_threads(3, [](Communicator& comm) {
    World world(comm.split(0, 0), Transport::kThreads);
    EXPECT_EQ(world.transport(), Transport::kThreads);
    EXPECT_EQ(world.comm().size(), 3);
    EXPECT_EQ(world.local_rank(), comm.rank());
    EXPECT_EQ(world.machine_of_rank(), std::vector<int>(3, 0));
  });
}

TEST_F(WorldTest, MayBeDecorated) {
  World world(Transport::kSelf);
  Communicator* const inner = &world.comm();
  world.decorate([&](std::unique_ptr<Communicator> comm) {
    EXPECT_EQ(comm.get(), inner);
    return std::make_unique<PacedCommunicator>(std::move(comm), Link{.gbit_per_s = 1});
  });
  EXPECT_NE(dynamic_cast<PacedCommunicator*>(&world.comm()), nullptr);
  EXPECT_THROW(world.decorate([](std::unique_ptr<Communicator>) { return nullptr; }), CheckError);
}

TEST_F(WorldTest, AbortEndsTheProcessWithTheCode) {
  World world(Transport::kSelf);
  EXPECT_EXIT(world.abort(7), ::testing::ExitedWithCode(7), "");
  World given(std::make_unique<SelfCommunicator>(), Transport::kSelf);
  EXPECT_EXIT(given.abort(8), ::testing::ExitedWithCode(8), "");
}

}  // namespace
}  // namespace ladder
