// --check-collectives on real ranks: whatever makes them wait for each other, all end within
// seconds, and the message names ranks, calls and lines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/testing/program.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/checkpoint/disk.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kSeconds = 20;  // on a busy machine; a hang would last forever

// What ranks that are processes, or threads, say of one mistake.
struct Case {
  std::string mistake;
  std::vector<std::string> said;
};

const std::string kStep = "all_reduce of 10 Float, at tests/hanging_ranks.cpp:";

const std::vector<Case> kDisagreements = {
    {"missing_rank",
     {"the ranks part at call 3 of all ranks, in optimizer step 2:", "ranks 0 and 2: " + kStep,
      "rank 1: the end"}},
    {"other_order",
     {"the ranks part at call 2 of all ranks, in optimizer step 2:",
      "ranks 0 and 2: all_reduce of 6 Float, at ", "rank 1: all_reduce of 2 Float, at "}},
    {"other_size",
     {"the ranks part at call 2 of all ranks", "ranks 0 and 2: all_reduce of 8 Float",
      "rank 1: all_reduce of 7 Float"}},
    {"other_dtype",
     {"the ranks part at call 2 of all ranks", "ranks 0 and 2: all_reduce of 8 Float",
      "rank 1: all_reduce of 8 Int"}},
    {"other_root",
     {"the ranks part at call 2 of all ranks", "ranks 0 and 2: broadcast of 8 Float from rank 0",
      "rank 1: broadcast of 8 Float from rank 1"}},
    {"only_rank_1",
     {"the ranks part at call 2 of all ranks", "ranks 0 and 2: " + kStep,
      "rank 1: all_reduce of 1 Double, at tests/hanging_ranks.cpp:"}},
    {"split_of_one",
     {"the ranks part at call 2 of all ranks", "ranks 0 and 2: " + kStep, "rank 1: split"}},
    {"other_message",
     {"the ranks part at message 1 from rank 0 to rank 1 with tag 0",
      "rank 0: send of 8 Float to rank 1", "rank 1: recv of 9 Float from rank 0"}},
};
const std::vector<Case> kWaits = {
    {"sends_first",
     {" has waited for 1 s (--check-collectives):",
      "rank 0 waits for rank 1 in message 1 from rank 0 to rank 1 with tag 5: send of ",
      "rank 1 waits for rank 2 in message 1 from rank 1 to rank 2 with tag 5: send of ",
      "rank 2 waits for rank 0 in message 1 from rank 2 to rank 0 with tag 5: send of "}},
    {"two_groups",
     {" has waited for 1 s", "rank 0 waits for rank 1 in call 1 of split 0, ranks {0, 1, 2}: ",
      "rank 1 waits for ranks 0 and 2 in call 1 of split 1, ranks {0, 1, 2}: ",
      "rank 2 waits for rank 1 in call 1 of split 0, ranks {0, 1, 2}: "}},
    {"exception",
     {"rank 1", "sample 17 cannot be read",
      "rank 0 waits for rank 1 in call 2 of all ranks: " + kStep, "rank 1 has failed"}},
};
const Case kSilent = {
    "silent_rank",
    {" has waited for 1 s", "rank 2 waits for rank 1 in call 2 of all ranks: " + kStep,
     "rank 1 has called nothing since call 1 of all ranks, " + kStep}};

void expect_said(const std::vector<std::string>& command, const Case& wanted) {
  SCOPED_TRACE(wanted.mistake);
  Program run(command);
  EXPECT_EQ(run.wait(kSeconds), 1) << run.output();
  for (const std::string& words : wanted.said) EXPECT_THAT(run.output(), HasSubstr(words));
}

std::string hanging_ranks(const Case& wanted, int check_collectives_s = 1) {
  return concat(one_word(LADDER_BUILD "/tests/hanging_ranks"), " ", wanted.mistake, " ",
                check_collectives_s);
}

std::vector<std::string> three_processes(const std::string& command) {
  return words(concat(mpi_launch(LADDER_MPIEXEC), "-n 3 ", command));
}

TEST(Hang, RanksThatDisagreeAreTold) {
  for (const Case& wanted : kDisagreements)
    expect_said(three_processes(hanging_ranks(wanted)), wanted);
}

TEST(Hang, RanksThatWaitForEachOtherAreTold) {
  for (const Case& wanted : kWaits) expect_said(three_processes(hanging_ranks(wanted)), wanted);
  expect_said(three_processes(hanging_ranks(kSilent)), kSilent);
}

// Rank 0 keeps what all have called. The others say so if it does not answer, and who waits where.
TEST(Hang, AFrozenRank0IsTold) {
  Program run(three_processes(hanging_ranks({"frozen_rank_0", {}})));
  EXPECT_EQ(run.wait(2 * kSeconds), 1) << run.output();
  EXPECT_THAT(run.output(),
              AllOf(HasSubstr("error: rank 0, which keeps the calls of all ranks "
                              "(--check-collectives), has not answered for 5 s"),
                    ContainsRegex("rank [12] is at call 2 of all ranks: all_reduce of 10 Float, at "
                                  "tests/hanging_ranks.cpp:"),
                    Not(HasSubstr("frame #"))));
}

TEST(Hang, AKilledRank0LeavesNoStackTraces) {
  Program run(three_processes(hanging_ranks({"killed_rank_0", {}})));
  EXPECT_NE(run.wait(kSeconds), 0);
  EXPECT_THAT(run.output(),
              AllOf(HasSubstr("rank 0"), HasSubstr("signal 9"), Not(HasSubstr("frame #"))));
}

// Many runs, four at once: of those with a rank in MPI_Finalize, mpirun hung in one of five.
TEST(Hang, RanksThatFailAfterOneHasEndedEndAll) {
  const std::vector<std::string> command =
      three_processes(hanging_ranks({"others_fail", {}}, /*check_collectives_s=*/0));
  for (int round = 0; round < 4; ++round) {
    std::array<Program, 4> runs = {Program(command), Program(command), Program(command),
                                   Program(command)};
    for (Program& run : runs) {
      EXPECT_EQ(run.wait(kSeconds), 1) << run.output();
      EXPECT_THAT(run.output(), HasSubstr("sample 17 cannot be read"));
    }
  }
}

TEST(Hang, ThreadsAreTold) {
  for (const auto& cases : {kDisagreements, kWaits})
    for (const Case& wanted : cases) expect_said(words(hanging_ranks(wanted) + " 3"), wanted);
}

#ifdef LADDER_TORCHRUN
// A store buffers what is sent, so that no rank waits in sends_first.
TEST(Hang, RanksOfTorchrunAreTold) {
  const std::string torchrun =
      concat(one_word(LADDER_TORCHRUN), " --standalone --nproc-per-node 3 --no-python ");
  for (const Case& wanted : {kDisagreements[1], kWaits[1], kWaits[2]})
    expect_said(words(torchrun + hanging_ranks(wanted)), wanted);
}
#endif

TEST(Hang, WhatIsRightIsLeftAlone) {
  for (const char* const ranks : {"2", "3", "4"}) {
    const std::string command = hanging_ranks({"none", {}});
    const ProgramResult of_processes =
        run_program(words(concat(mpi_launch(LADDER_MPIEXEC), "-n ", ranks, " ", command)));
    EXPECT_EQ(of_processes.exit_code, 0) << of_processes.output;
    EXPECT_EQ(of_processes.output, "");
    const ProgramResult of_threads = run_program(words(concat(command, " ", ranks)));
    EXPECT_EQ(of_threads.exit_code, 0) << of_threads.output;
    EXPECT_EQ(of_threads.output, "");
  }
}

}  // namespace
}  // namespace ladder
