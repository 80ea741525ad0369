// Ranks as threads, in real processes: every step trains to the same bits as under mpirun, and a
// debugger finds the ranks where it expects them.
#include "common/testing/process_test.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kSteps = words(LADDER_STEPS);

class Threads : public ProcessTest {
 protected:
  // The model has a block for each of three stages.
  static std::string training(const std::string& step, const std::string& options) {
    return concat(trainer(step),
                  "--layers 3 --heads 2 --channels 20 --context 16 --micro-batch-size 2 ",
                  "--num-microbatches 3 ", rounds_of(step), options);
  }
  static std::string on_threads(int num_ranks) {
    return concat("--transport threads --ranks ", num_ranks, " ");
  }
};

// Losses, gradient norms, parameter norms and parameters of all optimizer steps, in
// compare_runs.py; besides, what only the report has. Memory is that of a process, so it is
// nobody's. Of the other steps, thread_ladder_test and parity_ladder_test compare either with the
// oracle.
TEST_F(Threads, AStepEqualsItselfUnderMpirun) {
  for (const std::string& step : {kSteps[0], kSteps[1], kSteps[7], kSteps[8], kSteps[9]}) {
    const int ranks = step == kSteps[0] ? 1 : 3;
    SCOPED_TRACE(concat(step, " on ", ranks, " ranks"));
    const std::string options =
        "--steps 4 --eval-every 2 --eval-samples 6 --save-every 2 --sample SELECT --quiet --out ";
    run(mpirun(ranks) + training(step, options + "mpi"));
    run(training(step, on_threads(ranks) + options + "threads"));
    run(compared("threads", "mpi"), 0, {"equal to the bit: 4 steps"});
    const Json found = report_of("threads"), wanted = report_of("mpi");
    for (const char* key :
         {"world_size", "data_parallel_size", "pipeline_stages", "val_losses", "data_bytes_read",
          "memory_theory", "traffic", "traffic_theory", "param_hash", "sample"}) {
      EXPECT_EQ(found[key], wanted[key]) << key;
    }
    EXPECT_EQ(found["memory"], Json(std::vector<Json>(static_cast<std::size_t>(ranks))));
    EXPECT_GT(wanted["memory"][0]["peak"], 0);
    fs::remove_all(folder_.path("mpi"));
    fs::remove_all(folder_.path("threads"));
  }
}

// A checkpoint does not care who continues it, and the change is not worth a word.
TEST_F(Threads, ProcessesContinueWhatThreadsHaveBegun) {
  const std::string step5 = "step5_zero1", constant = "--lr-schedule constant ";
  run(training(step5, constant + on_threads(2) + "--steps 6 --out whole"));
  run(training(step5, constant + on_threads(2) + "--steps 3 --out parts"));
  EXPECT_THAT(run(mpirun(2) + training(step5, constant + "--steps 6 --resume auto --out parts"), 0,
                  {"resumed after step 3"}),
              AllOf(Not(HasSubstr("--ranks")), Not(HasSubstr("--transport"))));
  EXPECT_EQ(report_of("parts")["param_hash"], report_of("whole")["param_hash"]);
}

TEST_F(Threads, AreRefusedWhereTheyCannotBe) {
  run(training(kSteps[3], "--transport threads"), 2, {"give their number with --ranks N"});
  run(training(kSteps[3], "--ranks 2"), 2, {"./ladder train step3_naive_dp --ranks 2"});
  run(mpirun(2) + training(kSteps[3], on_threads(2)), 2,
      {"rank 0: error: --transport threads starts the ranks itself, but the launcher started 2 "
       "processes"});
  run(training(kSteps[0], on_threads(2)), 2, {"--simulate-ranks 2"});
  run(training(kSteps[3], on_threads(2) + "--memory-cap-mb 9"), 2, {"--memory-cap-mb 9"});
}

#ifdef LADDER_GDB
// A debugger stops where the first rank begins to train, and shows every rank by its name.
TEST_F(Threads, ADebuggerSeesAllRanks) {
  const std::string gdb = one_word(LADDER_GDB) +
                          " -batch -ex 'break ladder::step4::train' -ex run -ex 'info threads'"
                          " -ex delete -ex continue --args ";
  run(gdb + training(kSteps[4], on_threads(3) + "--steps 2 --out run"), 0,
      {"hit Breakpoint 1", "\"rank 0\"", "\"rank 1\"", "\"rank 2\"", "exited normally"});
  EXPECT_EQ(report_of()["world_size"], 3);
}
#endif

}  // namespace
}  // namespace ladder
