// --check-collectives on real ranks: whatever makes them wait for each other, all end within
// seconds, and the message names ranks, calls and lines.
#include <array>

#include "common/testing/process_test.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

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
// The other ranks wait for this rank in call 2.
Case late(const std::string& mistake, int rank, int last_call) {
  Case wanted = {mistake,
                 {" has waited for 2 s", concat("rank ", rank, " has called nothing since call ",
                                                last_call, " of all ranks, ", kStep)}};
  for (const int other : {0, 1, 2})
    if (other != rank)
      wanted.said.push_back(
          concat("rank ", other, " waits for rank ", rank, " in call 2 of all ranks: ", kStep));
  return wanted;
}

class Hang : public ProcessTest {
 protected:
  Hang() { seconds_ = 20; }  // on a busy machine; a hang would last forever

  static std::string ranks_with(const std::string& mistake, double check_collectives_s = 1) {
    return concat(one_word(LADDER_BUILD "/tests/hanging_ranks"), " ", mistake, " ",
                  check_collectives_s, " ");
  }
  // Once; but torchrun lets every rank speak.
  void expect_said(const std::string& launcher, const Case& wanted, const std::string& more = "",
                   double seconds = 1) {
    const std::string output =
        run(launcher + ranks_with(wanted.mistake, seconds) + more, 1, wanted.said);
    EXPECT_TRUE(output.find("error: ") == output.rfind("error: ") ||
                launcher.find("torchrun") != std::string::npos)
        << output;
  }
};

// All of them on threads, below: what compares the calls is the same over any transport.
TEST_F(Hang, RanksThatDisagreeAreTold) {
  for (const Case& wanted : {kDisagreements[0], kDisagreements[6], kDisagreements[7]})
    expect_said(mpirun(3), wanted);
}

TEST_F(Hang, RanksThatWaitForEachOtherAreTold) {
  for (const Case& wanted : kWaits) expect_said(mpirun(3), wanted);
  // A thread that never returns cannot be ended.
  for (const Case& wanted :
       {late("late_rank_0", 0, 1), late("late_rank_2", 2, 1), late("frozen_in_a_call", 2, 2)})
    expect_said(mpirun(3), wanted, "", 2);
}

// Rank 0 keeps what all have called. The others say so if it does not answer, and who waits where.
TEST_F(Hang, AFrozenRank0IsTold) {
  seconds_ *= 2;
  EXPECT_THAT(run(mpirun(3) + ranks_with("frozen_rank_0"), 1,
                  {"error: rank 0, which keeps the calls of all ranks (--check-collectives), has "
                   "not answered for 5 s"}),
              AllOf(ContainsRegex("rank [12] is at call 2 of all ranks: all_reduce of 10 Float, at "
                                  "tests/hanging_ranks.cpp:"),
                    Not(HasSubstr("frame #"))));
}

TEST_F(Hang, AKilledRank0LeavesNoStackTraces) {
  Program killed = start(mpirun(3) + ranks_with("killed_rank_0"));
  EXPECT_NE(killed.wait(seconds_), 0);
  EXPECT_THAT(killed.output(),
              AllOf(HasSubstr("rank 0"), HasSubstr("signal 9"), Not(HasSubstr("frame #"))));
}

// Eight runs, four at once: of those with a rank in MPI_Finalize, mpirun hung in one of five.
TEST_F(Hang, RanksThatFailAfterOneHasEndedEndAll) {
  const std::string command = mpirun(3) + ranks_with("others_fail", /*check_collectives_s=*/0);
  for (int round = 0; round < 2; ++round) {
    std::array<Program, 4> runs = {start(command), start(command), start(command), start(command)};
    for (Program& each : runs) {
      EXPECT_EQ(each.wait(seconds_), 1) << each.output();
      EXPECT_THAT(each.output(), HasSubstr("sample 17 cannot be read"));
    }
  }
}

TEST_F(Hang, ThreadsAreTold) {
  for (const auto& cases : {kDisagreements, kWaits})
    for (const Case& wanted : cases) expect_said("", wanted, "3");
}

#ifdef LADDER_TORCHRUN
// A store buffers what is sent, so that no rank waits in sends_first.
TEST_F(Hang, RanksOfTorchrunAreTold) {
  const std::string torchrun =
      concat(one_word(LADDER_TORCHRUN), " --standalone --nproc-per-node 3 --no-python ");
  for (const Case& wanted : {kDisagreements[1], kWaits[1], kWaits[2]})
    expect_said(torchrun, wanted);
}
#endif

TEST_F(Hang, WhatIsRightIsLeftAlone) {
  for (const int ranks : {2, 4}) {
    EXPECT_EQ(run(mpirun(ranks) + ranks_with("none")), "");
    EXPECT_EQ(run(concat(ranks_with("none"), ranks)), "");
  }
}

}  // namespace
}  // namespace ladder
