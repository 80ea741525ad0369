// Ranks as threads, in real processes: every step trains to the same bits as under mpirun, and
// errors, signals and a debugger find the ranks where they expect them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/testing/program.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/checkpoint/disk.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kSteps = words(LADDER_STEPS);

class Threads : public ::testing::Test {
 protected:
  // The command line of a trainer, on a model that has a block for each of three stages.
  static std::string trainer(const std::string& step, const std::string& options) {
    return concat(one_word(concat(LADDER_BUILD, "/", step, "/", step)),
                  " --layers 3 --heads 2 --channels 20 --context 16 --micro-batch-size 2 ",
                  "--num-microbatches 3 ",
                  step == "step9_diloco" ? "--sync-every 4 --fragments 2 --sync-delay 1 " : "",
                  options);
  }
  static std::string on_threads(int num_ranks) {
    return concat("--transport threads --ranks ", num_ranks, " ");
  }
  static std::string under_mpirun(int num_ranks) {
    return concat(mpi_launch(LADDER_MPIEXEC), "-n ", num_ranks, " ");
  }
  ProgramResult run(const std::string& command) const {
    return run_program(words(command), folder_.path());
  }
  Json report_of(const std::string& folder) const {
    return parse_json(read_text_file(folder_.path(folder + "/report.json")), "report.json");
  }

  TempFolder folder_;
};

// Losses, gradient norms, parameter norms and parameters of all optimizer steps, in
// compare_runs.py; besides, what only the report has. Memory is that of a process, so it is
// nobody's.
TEST_F(Threads, EveryStepEqualsItselfUnderMpirun) {
  for (const std::string& step : kSteps) {
    const int ranks = step == kSteps[0] ? 1 : 3;
    SCOPED_TRACE(concat(step, " on ", ranks, " ranks"));
    const std::string options =
        "--steps 4 --eval-every 2 --eval-samples 6 --save-every 2 --sample SELECT --quiet --out ";
    const ProgramResult processes = run(under_mpirun(ranks) + trainer(step, options + "mpi"));
    ASSERT_EQ(processes.exit_code, 0) << processes.output;
    const ProgramResult threads = run(trainer(step, on_threads(ranks) + options + "threads"));
    ASSERT_EQ(threads.exit_code, 0) << threads.output;

    const ProgramResult same =
        run(concat("python3 ", one_word(LADDER_SOURCE "/scripts/compare_runs.py"), " threads mpi"));
    EXPECT_EQ(same.exit_code, 0) << same.output;
    EXPECT_THAT(same.output, HasSubstr("equal to the bit: 4 steps"));
    const Json found = report_of("threads"), wanted = report_of("mpi");
    for (const char* key :
         {"world_size", "data_parallel_size", "pipeline_stages", "val_losses", "data_bytes_read",
          "memory_theory", "traffic", "traffic_theory", "param_hash", "sample"}) {
      EXPECT_EQ(found[key], wanted[key]) << key;
    }
    EXPECT_EQ(found["memory"], Json(std::vector<Json>(static_cast<std::size_t>(ranks))));
    EXPECT_GT(wanted["memory"][0]["peak"], 0);
    std::filesystem::remove_all(folder_.path("mpi"));
    std::filesystem::remove_all(folder_.path("threads"));
  }
}

// A checkpoint does not care who continues it, and the change is not worth a word.
TEST_F(Threads, ProcessesContinueWhatThreadsHaveBegun) {
  const auto train = [&](const std::string& launch, const std::string& options) {
    const ProgramResult result =
        run(launch + trainer("step5_zero1", "--lr-schedule constant " + options));
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return result.output;
  };
  train("", on_threads(2) + "--steps 6 --out whole");
  train("", on_threads(2) + "--steps 3 --out parts");
  const std::string output = train(under_mpirun(2), "--steps 6 --resume auto --out parts");
  EXPECT_THAT(output, AllOf(HasSubstr("resumed after step 3"), Not(HasSubstr("--ranks")),
                            Not(HasSubstr("--transport"))));
  EXPECT_EQ(report_of("parts")["param_hash"], report_of("whole")["param_hash"]);
}

TEST_F(Threads, SaveAndStopOnASignal) {
  for (const std::string& step : {kSteps[4], kSteps[8], kSteps[9]}) {
    const std::string command =
        trainer(step, on_threads(3) + "--log-every 1 --out run --resume auto --steps ");
    Program run(words(command + "100000"), folder_.path());
    ASSERT_TRUE(run.wait_for_output("step 3/")) << run.output();
    run.signal(SIGUSR1);
    EXPECT_EQ(run.wait(20), 75) << run.output();
    EXPECT_TRUE(report_of("run")["was_stopped"].get<bool>());
    std::filesystem::remove_all(folder_.path("run"));
  }
}

TEST_F(Threads, AnErrorIsSaidOnceAndLeavesNoFolder) {
  const ProgramResult result = run(trainer(kSteps[3], on_threads(3) + "--data none.txt"));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, AllOf(HasSubstr("error: rank "), HasSubstr("none.txt: cannot be")));
  EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path("runs")));
}

TEST_F(Threads, AreRefusedWhereTheyCannotBe) {
  const auto expect_refused = [&](const std::string& command, const std::string& why) {
    const ProgramResult result = run(command);
    EXPECT_EQ(result.exit_code, 2) << result.output;
    EXPECT_THAT(result.output, HasSubstr(why));
  };
  expect_refused(trainer(kSteps[3], "--transport threads"), "give their number with --ranks N");
  expect_refused(trainer(kSteps[3], "--ranks 2"), "./ladder train step3_naive_dp --ranks 2");
  expect_refused(under_mpirun(2) + trainer(kSteps[3], on_threads(2)),
                 "rank 0: error: --transport threads starts the ranks itself, but the launcher "
                 "started 2 processes");
  expect_refused(trainer(kSteps[0], on_threads(2)), "--simulate-ranks 2");
  expect_refused(trainer(kSteps[3], on_threads(2) + "--memory-cap-mb 9"), "--memory-cap-mb 9");
}

#ifdef LADDER_GDB
// A debugger stops where the first rank begins to train, and shows every rank by its name.
TEST_F(Threads, ADebuggerSeesAllRanks) {
  const std::string gdb = one_word(LADDER_GDB) +
                          " -batch -ex 'break ladder::step4::train' -ex run -ex 'info threads'"
                          " -ex delete -ex continue --args ";
  const ProgramResult result = run(gdb + trainer(kSteps[4], on_threads(3) + "--steps 2 --out run"));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("hit Breakpoint 1"), HasSubstr("\"rank 0\""), HasSubstr("\"rank 1\""),
                    HasSubstr("\"rank 2\""), HasSubstr("exited normally")));
  EXPECT_EQ(report_of("run")["world_size"], 3);
}
#endif

}  // namespace
}  // namespace ladder
