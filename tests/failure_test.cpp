// No failure hangs: whatever one rank does wrong, all ranks end within seconds, and a message names
// the rank and the reason. Tests real processes under mpirun, with real kills.
#include <algorithm>
#include <csignal>

#include "common/core/timer.hpp"
#include "common/testing/process_test.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A model and data that take milliseconds per step.
const std::string kSmall = "--layers 1 --heads 2 --channels 16 --context 16 --data text.txt ";

const std::vector<std::string> kAllSteps = words(LADDER_STEPS);
const std::vector<std::string> kSteps(kAllSteps.begin() + 1, kAllSteps.end());  // on several ranks

// Waits until a checkpoint of step 4 or a later one is being written. Each is there for
// milliseconds only, but there is one after every step.
bool saves_after_step_3(const fs::path& checkpoints) {
  const Timer timer;
  while (timer.seconds() < 20) {
    std::error_code gone;
    for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints, gone)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(".partial_step_") && name >= ".partial_step_000004") return true;
    }
  }
  return false;
}

class Failure : public ProcessTest {
 protected:
  Failure() {
    seconds_ = 20;  // on a busy machine; a hang would last forever
    for (const char* folder : {"a", "b"}) {
      fs::create_directories(folder_.path(folder));
      folder_.write(concat(folder, "/text.txt"), numbered_lines(100));
    }
  }

  // The command line of one trainer.
  static std::string training(const std::string& step, const std::string& more = "") {
    return concat(trainer(step), kSmall, rounds_of(step),
                  step == "step8_pipeline_ga" ? "--layers 2 " : "",  // a block for each stage
                  "--micro-batch-size 2 --steps 100000 --log-every 1 --out ../run ", more);
  }
  // Rank 0 in folder a, rank 1 in folder b.
  std::string two_ranks(const std::string& rank_0, const std::string& rank_1) const {
    return concat(mpi_launch(LADDER_MPIEXEC), "-n 1 -wdir ", one_word(folder_.path("a")), " ",
                  rank_0, " : -n 1 -wdir ", one_word(folder_.path("b")), " ", rank_1);
  }
  std::string two_ranks(const std::string& of_both) const { return two_ranks(of_both, of_both); }
  // Runs one rank alone, in this folder.
  void run_alone(const char* folder, const std::string& options) const {
    const std::string in = concat("env -C ", one_word(folder_.path(folder)), " ");
    run(concat(in, trainer(kSteps[3]), kSmall, "--quiet --out run ", options));
  }
};

// A rank has no data, which any step says alike; or fewer; or as many samples and tokens of another
// text.
TEST_F(Failure, ARankThatThrowsOrReadsOtherData) {
  std::string reversed = read_text_file(folder_.path("a/text.txt"));
  std::reverse(reversed.begin(), reversed.end());
  fs::remove(folder_.path("b/text.txt"));
  run(two_ranks(training(kSteps[7])), 1, {"rank 1: error: ", "text.txt"});
  folder_.write("b/text.txt", "only a few words for rank one, and no more than that");
  for (const std::string& step : kSteps)
    run(two_ranks(training(step)), 1, {"error: samples in the training data: ", " on rank 1, "});
  folder_.write("b/text.txt", reversed);
  run(two_ranks(training(kSteps[2])), 1, {"error: hash of the training data: ", " on rank 1, "});
}

TEST_F(Failure, DifferentOptions) {
  for (const std::string& step : {kSteps[0], kSteps[3], kSteps[6]})
    run(two_ranks(training(step), training(step, "--lr 0.5")), 2,
        {"error: rank 1 was started with --lr 0.5, rank 0 with 0.001"});
  // The options of a rank that checks its calls are compared before it does.
  const std::string step4 = training(kSteps[3]);
  run(two_ranks(training(kSteps[3], "--check-collectives 9"), step4), 2,
      {"error: rank 1 was started with --check-collectives 0.0, rank 0 with 9.0"});
  // What was not given follows from the CPU, here from what libtorch is told of it.
  run(two_ranks(training(kSteps[3], "--products onednn"),
                "env ATEN_CPU_CAPABILITY=default " + step4),
      2,
      {"error: rank 1 on ", " multiplies matrices with \"blas\", rank 0 on ", "with \"onednn\"",
       "start all ranks with --products blas"});
  run(two_ranks(training(kSteps[2]), step4), 2,
      {"error: rank 1 runs \"step4_bucketed_ddp\" but rank 0 runs \"step3_naive_dp\""});
  run(two_ranks(step4, training(kSteps[3], "--stepz 1")), 2, {"rank 1: error: ", "--stepz"});
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
  for (const auto& [step, of_a, of_b, goes_on, message] : std::vector<Difference>{
           {kSteps[3], "--steps 2", "--steps 3", "--out run --resume auto --steps 9",
            "steps taken: 3 on rank 1, 2 on rank 0"},
           {kSteps[3], "--steps 2 --seed 1", "--steps 2 --seed 2",
            "--out run --resume auto --steps 9", hashes},
           {kSteps[4], "--steps 0 --seed 1", "--steps 0 --seed 2", starts, hashes},
           {kSteps[6], "--steps 0 --seed 1", "--steps 0 --seed 2", starts, hashes}}) {
    for (const char* folder : {"a", "b"}) fs::remove_all(folder_.path(concat(folder, "/run")));
    run_alone("a", of_a);
    run_alone("b", of_b);
    run(two_ranks(concat(trainer(step), kSmall, "--quiet ", goes_on)), 1, {"error: " + message});
  }
}

// One rank considers the state saved, because it is in its --out. It would not take part in the
// final save, for which the other rank waits.
TEST_F(Failure, OneRankThatNeedNotSave) {
  run_alone("a", "--steps 2");
  for (const std::string& step : {kSteps[4], kSteps[6]})
    run(two_ranks(concat(trainer(step), kSmall, "--quiet --steps 2 --out run --resume ",
                         one_word(folder_.path("a/run")))),
        1, {"error: is the checkpoint to resume from the newest in --out: "});
}

// All ranks know the same numbers, so all of them end, and the run's older checkpoints are kept.
TEST_F(Failure, ARunThatDiverges) {
  const std::string options = "--optimizer sgd --save-every 2 --keep 1 --resume auto --steps ";
  const std::string diverging = options + "40 --lr 1e30 --clip-norm 0";
  for (const std::string& step : {kSteps[2], kSteps[4], kSteps[6], kSteps[7], kSteps[8]}) {
    SCOPED_TRACE(step);
    run(two_ranks(training(step, options + "4")));
    run(two_ranks(training(step, diverging)), 1,
        {"rank 0: error: step 6: ", " is not finite", "step_000004"});
    EXPECT_TRUE(fs::exists(folder_.path("run/checkpoints/step_000004")));
    run(two_ranks(training(step, options + "6")));
    EXPECT_TRUE(fs::exists(folder_.path("run/checkpoints/step_000006")));
    fs::remove_all(folder_.path("run"));
  }
}

TEST_F(Failure, AFolderThatAnotherRunWritesTo) {
  const std::string command = two_ranks(training(kSteps[3], "--resume auto --save-every 2"));
  Program first = start(command);
  ASSERT_TRUE(first.wait_for_output("step_000002")) << first.output();
  run(command, 1, {"rank 0: error: --out ../run is in use by process "});
  EXPECT_TRUE(first.wait_for_output("step_000010")) << first.output();
}

// The disk is full while all ranks save: all end, and no partial checkpoint counts as one.
TEST_F(Failure, ADiskThatIsFull) {
  folder_.write("a/small_disk.sh", "trap '' XFSZ; ulimit -f 300; exec \"$@\"");
  for (const std::string& step : {kSteps[3], kSteps[4], kSteps[6], kSteps[7]}) {
    const std::string command = training(step, "--channels 128 --steps 3 --save-every 1");
    run(two_ranks("bash small_disk.sh " + command, command), 1,
        {"rank 0: error: ", "cannot be written"});
    EXPECT_TRUE(fs::is_empty(folder_.path("run/checkpoints")));
    fs::remove_all(folder_.path("run"));
  }
}

// Killed, it ends all, whatever the step. Told to stop, all of them save and stop: that is a line of
// each loop.
TEST_F(Failure, ASignalToOneRankReachesAll) {
  std::vector<std::pair<std::string, int>> signals = {{kSteps[3], SIGKILL}};
  for (const std::string& step : kSteps) signals.emplace_back(step, SIGUSR1);
  for (const auto& [step, signal] : signals) {
    Program program = start(two_ranks(training(step)));
    ASSERT_TRUE(program.wait_for_output("step 3/")) << program.output();
    const std::vector<pid_t> ranks = program.children();
    ASSERT_EQ(ranks.size(), 2u);
    ::kill(*std::max_element(ranks.begin(), ranks.end()), signal);  // the one that started last
    const int exit_code = program.wait(seconds_);
    if (signal == SIGKILL) {
      EXPECT_NE(exit_code, 0);
      EXPECT_THAT(program.output(), AllOf(HasSubstr("rank 1"), HasSubstr("signal 9")));
    } else {
      EXPECT_EQ(exit_code, 75) << program.output();
      EXPECT_TRUE(report_of()["was_stopped"].get<bool>());
      EXPECT_EQ(report_of()["world_size"], 2);
    }
    fs::remove_all(folder_.path("run"));
  }
}

// Whichever rank dies during a save, a checkpoint is either whole or absent: in steps 5 to 9 all
// ranks save together, because each has a part of the state.
TEST_F(Failure, ARankThatIsKilledWhileAllSave) {
  std::size_t rank = 0;
  for (const std::string& step : {kSteps[4], kSteps[5], kSteps[6], kSteps[7], kSteps[8]}) {
    rank = 1 - rank;
    SCOPED_TRACE(concat(step, ", rank ", rank));
    const std::string model = "--layers 4 --channels 128 ";
    Program program = start(two_ranks(training(step, model + "--keep 2 --save-every 1")));
    ASSERT_TRUE(saves_after_step_3(folder_.path("run/checkpoints"))) << program.output();
    std::vector<pid_t> ranks = program.children();
    ASSERT_EQ(ranks.size(), 2u);
    std::sort(ranks.begin(), ranks.end());
    ::kill(ranks[rank], SIGKILL);
    EXPECT_NE(program.wait(seconds_), 0);
    run(two_ranks(training(step, model + "--resume auto --quiet --steps 20")));
    EXPECT_GE(report_of()["first_step"].get<int>(), 3);  // the previous one was whole
    fs::remove_all(folder_.path("run"));
  }
}

TEST_F(Failure, ARankThatExitsBeforeItBegins) {
  folder_.write("exit.sh", "exit 3");
  run(two_ranks(training(kSteps[3]), "/bin/sh ../exit.sh"), 3, {"exit"});
}

}  // namespace
}  // namespace ladder
