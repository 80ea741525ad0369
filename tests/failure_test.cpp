// No failure hangs: whatever one rank does wrong, all ranks end within seconds, and a message names
// the rank and the reason. Tests real processes under mpirun, with real kills.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/core/timer.hpp"
#include "common/testing/program.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/checkpoint/disk.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kSeconds = 20;  // on a busy machine; a hang would last forever

using Words = std::vector<std::string>;

// A model and data that take milliseconds per step.
const std::string kSmall = " --layers 1 --heads 2 --channels 16 --context 16 --data text.txt ";

const std::vector<std::string> kAllSteps = words(LADDER_STEPS);
const std::vector<std::string> kSteps(kAllSteps.begin() + 1, kAllSteps.end());  // on several ranks

// What a step needs on two ranks, besides the small model.
std::string needed_by(const std::string& step) {
  if (step == "step8_pipeline_ga") return "--layers 2 ";  // a block for each stage
  if (step == "step9_diloco") return "--sync-every 4 --fragments 2 --sync-delay 1 ";
  return "";
}

std::string program(const std::string& step) {
  return one_word(concat(LADDER_BUILD, "/", step, "/", step));
}

// Waits until a checkpoint of step 4 or a later one is being written. Each is there for
// milliseconds only, but there is one after every step.
bool saves_after_step_3(const fs::path& checkpoints) {
  const Timer timer;
  while (timer.seconds() < kSeconds) {
    std::error_code gone;
    for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints, gone)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(".partial_step_") && name >= ".partial_step_000004") return true;
    }
  }
  return false;
}

class Failure : public ::testing::Test {
 protected:
  Failure() {
    std::string text;
    for (int i = 0; i < 100; ++i) text += concat("line ", i, " of a text that repeats itself. ");
    for (const char* folder : {"a", "b"}) {
      fs::create_directories(folder_.path(folder));
      folder_.write(concat(folder, "/text.txt"), text);
    }
  }

  // The command line of one trainer.
  static std::string trainer(const std::string& step, const std::string& more = "") {
    return concat(program(step), kSmall, needed_by(step),
                  "--micro-batch-size 2 --steps 100000 --log-every 1 --out ../run ", more);
  }

  // Rank 0 in folder a, rank 1 in folder b.
  Words two_ranks(const std::string& rank_0, const std::string& rank_1) const {
    return words(concat(mpi_launch(LADDER_MPIEXEC), "-n 1 -wdir ", one_word(folder_.path("a")), " ",
                        rank_0, " : -n 1 -wdir ", one_word(folder_.path("b")), " ", rank_1));
  }

  // Expects that it ends in time, with this exit code.
  std::string expect_end(const Words& command, int exit_code) const {
    Program run(command, folder_.path());
    EXPECT_EQ(run.wait(kSeconds), exit_code) << run.output();
    return run.output();
  }

  TempFolder folder_;
};

// Without data, with fewer, and with as many samples and tokens of another text.
TEST_F(Failure, ARankThatThrowsOrReadsOtherData) {
  std::string reversed = read_text_file(folder_.path("a/text.txt"));
  std::reverse(reversed.begin(), reversed.end());
  fs::remove(folder_.path("b/text.txt"));
  for (const std::string& step : kSteps) {
    EXPECT_THAT(expect_end(two_ranks(trainer(step), trainer(step)), 1),
                AllOf(HasSubstr("rank 1: error: "), HasSubstr("text.txt")));
  }
  const auto expect_other = [&](const std::string& step, const char* what) {
    EXPECT_THAT(expect_end(two_ranks(trainer(step), trainer(step)), 1),
                AllOf(HasSubstr(concat("error: ", what)), HasSubstr(" on rank 1, ")));
  };
  folder_.write("b/text.txt", "only a few words for rank one, and no more than that");
  for (const std::string& step : kSteps) expect_other(step, "samples in the training data: ");
  folder_.write("b/text.txt", reversed);
  expect_other(kSteps[2], "hash of the training data: ");
}

TEST_F(Failure, AnErrorOfAllRanksIsSaidOnce) {
  const std::string command = trainer(kSteps[2], "--data none.txt");
  EXPECT_THAT(expect_end(two_ranks(command, command), 1),
              AllOf(HasSubstr("rank 0: error: "), Not(HasSubstr("rank 1: error: "))));
}

TEST_F(Failure, DifferentOptions) {
  for (const std::string& step : {kSteps[0], kSteps[3], kSteps[6]}) {
    EXPECT_THAT(expect_end(two_ranks(trainer(step), trainer(step, "--lr 0.5")), 2),
                HasSubstr("error: rank 1 was started with --lr 0.5, rank 0 with 0.001"));
  }
  // Those of a rank that checks its calls are compared before it does.
  EXPECT_THAT(
      expect_end(two_ranks(trainer(kSteps[3], "--check-collectives 9"), trainer(kSteps[3])), 2),
      HasSubstr("error: rank 1 was started with --check-collectives 0.0, rank 0 with 9.0"));
  EXPECT_THAT(
      expect_end(two_ranks(trainer(kSteps[2]), trainer(kSteps[3])), 2),
      HasSubstr("error: rank 1 runs \"step4_bucketed_ddp\" but rank 0 runs \"step3_naive_dp\""));
  EXPECT_THAT(expect_end(two_ranks(trainer(kSteps[3]), trainer(kSteps[3], "--stepz 1")), 2),
              AllOf(HasSubstr("rank 1: error: "), HasSubstr("--stepz")));
  EXPECT_FALSE(fs::exists(folder_.path("run")));
}

// Each rank goes on from a run of its own: of another length; as long, but of another seed, which a
// step that broadcasts would hide; or a new one starts from it, and a step that holds slices would
// train half of each.
TEST_F(Failure, DifferentCheckpoints) {
  struct Difference {
    std::string step, of_a, of_b, goes_on, message;
  };
  const std::string hashes = "hashes of the checkpoint to resume from: ";
  const std::string starts = "--init-from run --out ../new --steps 2";
  for (const Difference& difference : std::vector<Difference>{
           {kSteps[3], "--steps 2", "--steps 3", "--out run --resume auto --steps 9",
            "steps taken: 3 on rank 1, 2 on rank 0"},
           {kSteps[3], "--steps 2 --seed 1", "--steps 2 --seed 2",
            "--out run --resume auto --steps 9", hashes},
           {kSteps[4], "--steps 0 --seed 1", "--steps 0 --seed 2", starts, hashes},
           {kSteps[6], "--steps 0 --seed 1", "--steps 0 --seed 2", starts, hashes}}) {
    for (const char* folder : {"a", "b"}) {
      fs::remove_all(folder_.path(concat(folder, "/run")));
      const std::string& own = *folder == 'a' ? difference.of_a : difference.of_b;
      const Words run = words(concat(program(kSteps[3]), kSmall, "--quiet --out run ", own));
      ASSERT_EQ(run_program(run, folder_.path(folder)).exit_code, 0);
    }
    const std::string command =
        concat(program(difference.step), kSmall, "--quiet ", difference.goes_on);
    EXPECT_THAT(expect_end(two_ranks(command, command), 1),
                HasSubstr("error: " + difference.message));
  }
}

// One rank considers the state saved, because it is in its --out. It would not take part in the
// final save, for which the other rank waits.
TEST_F(Failure, OneRankThatNeedNotSave) {
  const std::string options = kSmall + "--quiet --steps 2 ";
  const Words run = words(concat(program(kSteps[3]), options, "--out run"));
  ASSERT_EQ(run_program(run, folder_.path("a")).exit_code, 0);
  for (const std::string& step : {kSteps[4], kSteps[6]}) {
    const std::string command =
        concat(program(step), options, "--out run --resume ", one_word(folder_.path("a/run")));
    EXPECT_THAT(expect_end(two_ranks(command, command), 1),
                HasSubstr("error: is the checkpoint to resume from the newest in --out: "));
  }
}

// All ranks know the same numbers, so all of them end, and the run's older checkpoints are kept.
TEST_F(Failure, ARunThatDiverges) {
  const std::string options = "--optimizer sgd --save-every 2 --keep 1 --resume auto --steps ";
  const std::string diverging = options + "40 --lr 1e30 --clip-norm 0";
  for (const std::string& step : {kSteps[2], kSteps[4], kSteps[6], kSteps[7], kSteps[8]}) {
    SCOPED_TRACE(step);
    expect_end(two_ranks(trainer(step, options + "4"), trainer(step, options + "4")), 0);
    EXPECT_THAT(expect_end(two_ranks(trainer(step, diverging), trainer(step, diverging)), 1),
                AllOf(HasSubstr("rank 0: error: step 6: "), HasSubstr(" is not finite"),
                      HasSubstr("step_000004")));
    EXPECT_TRUE(fs::exists(folder_.path("run/checkpoints/step_000004")));
    expect_end(two_ranks(trainer(step, options + "6"), trainer(step, options + "6")), 0);
    EXPECT_TRUE(fs::exists(folder_.path("run/checkpoints/step_000006")));
    fs::remove_all(folder_.path("run"));
  }
}

TEST_F(Failure, AFolderThatAnotherRunWritesTo) {
  const std::string command = trainer(kSteps[3], "--resume auto --save-every 2");
  Program first(two_ranks(command, command), folder_.path());
  ASSERT_TRUE(first.wait_for_output("step_000002")) << first.output();
  EXPECT_THAT(expect_end(two_ranks(command, command), 1),
              HasSubstr("rank 0: error: --out ../run is in use by process "));
  EXPECT_TRUE(first.wait_for_output("step_000010")) << first.output();
}

// The disk is full while all ranks save: all end, and no partial checkpoint counts as one.
TEST_F(Failure, ADiskThatIsFull) {
  folder_.write("a/small_disk.sh", "trap '' XFSZ; ulimit -f 300; exec \"$@\"");
  for (const std::string& step : {kSteps[3], kSteps[4], kSteps[6], kSteps[7]}) {
    const std::string command = trainer(step, "--channels 128 --steps 3 --save-every 1");
    EXPECT_THAT(expect_end(two_ranks("bash small_disk.sh " + command, command), 1),
                AllOf(HasSubstr("rank 0: error: "), HasSubstr("cannot be written")));
    EXPECT_FALSE(fs::exists(folder_.path("run/checkpoints/step_000001")));
    fs::remove_all(folder_.path("run"));
  }
}

// Killed, it ends all. Told to stop, all of them save and stop.
TEST_F(Failure, ASignalToOneRankReachesAll) {
  for (const std::string& step : kSteps) {
    for (const int signal : {SIGKILL, SIGUSR1}) {
      Program run(two_ranks(trainer(step), trainer(step)), folder_.path());
      ASSERT_TRUE(run.wait_for_output("step 3/")) << run.output();
      const std::vector<pid_t> ranks = run.children();
      ASSERT_EQ(ranks.size(), 2u);
      ::kill(*std::max_element(ranks.begin(), ranks.end()), signal);  // the one that started last
      const int exit_code = run.wait(kSeconds);
      if (signal == SIGKILL) {
        EXPECT_NE(exit_code, 0);
        EXPECT_THAT(run.output(), AllOf(HasSubstr("rank 1"), HasSubstr("signal 9")));
      } else {
        EXPECT_EQ(exit_code, 75) << run.output();
        const Json report = parse_json(read_text_file(folder_.path("run/report.json")), "report");
        EXPECT_TRUE(report["was_stopped"].get<bool>());
        EXPECT_EQ(report["world_size"], 2);
      }
      fs::remove_all(folder_.path("run"));
    }
  }
}

// Whichever rank dies during a save, a checkpoint is either whole or absent: in steps 5 to 9 all
// ranks save together, because each has a part of the state.
TEST_F(Failure, ARankThatIsKilledWhileAllSave) {
  for (const std::string& step : {kSteps[4], kSteps[5], kSteps[6], kSteps[7], kSteps[8]}) {
    for (const int rank : {0, 1}) {
      SCOPED_TRACE(concat(step, ", rank ", rank));
      const std::string model = "--layers 4 --channels 128 ";
      const std::string saving = trainer(step, model + "--keep 2 --save-every 1");
      Program run(two_ranks(saving, saving), folder_.path());
      ASSERT_TRUE(saves_after_step_3(folder_.path("run/checkpoints"))) << run.output();
      std::vector<pid_t> ranks = run.children();
      ASSERT_EQ(ranks.size(), 2u);
      std::sort(ranks.begin(), ranks.end());
      ::kill(ranks[static_cast<std::size_t>(rank)], SIGKILL);
      EXPECT_NE(run.wait(kSeconds), 0);
      const std::string resumed = trainer(step, model + "--resume auto --quiet --steps 20");
      EXPECT_EQ(run_program(two_ranks(resumed, resumed), folder_.path()).exit_code, 0);
      const Json report = parse_json(read_text_file(folder_.path("run/report.json")), "report");
      EXPECT_GE(report["first_step"].get<int>(), 3);  // the previous one was whole
      fs::remove_all(folder_.path("run"));
    }
  }
}

TEST_F(Failure, ARankThatExitsBeforeItBegins) {
  folder_.write("exit.sh", "exit 3");
  EXPECT_THAT(expect_end(two_ranks(trainer(kSteps[3]), "/bin/sh ../exit.sh"), 3),
              HasSubstr("exit"));
}

TEST_F(Failure, AParameterThatOneRankDoesNotUse) {
  for (const char* who : {"reducer", "bucketer"}) {
    const std::string command = concat(one_word(LADDER_BUILD "/tests/unused_parameter"), " ", who);
    EXPECT_THAT(expect_end(two_ranks(command, command), 1),
                AllOf(HasSubstr("error: rank 1"), HasSubstr("'bias'")));
  }
}

}  // namespace
}  // namespace ladder
