// A run kept as a reference and others compared with it, as real processes on two ranks. Also, what
// the launcher refuses to run.
#include <csignal>

#include "tests/process_test.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class Reference : public ProcessTest {
 protected:
  // Two ranks, which leave a run in the folder `out`.
  static std::string training(const std::string& step, const std::string& out,
                              const std::string& more) {
    return concat(mpirun(2), trainer(step),
                  "--layers 1 --heads 2 --channels 20 --context 16 --micro-batch-size 2 --steps 4 ",
                  "--out ", out, " ", more);
  }
};

TEST_F(Reference, OtherStepsEqualItAndOtherRunsAreToldWhereTheyPart) {
  run(training("step1_ddp_reference", "first", "--save-reference kept"));
  run(training("step4_bucketed_ddp", "same", "--bucket-mb 0.01"));
  run(compared("same", "kept"), 0, {"equal to the bit: 4 steps"});
  run(training("step3_naive_dp", "other", "--weight-decay 0.2"));
  EXPECT_THAT(
      run(compared("other", "kept"), 1,
          {"step 1: parameter norm", "step 2: loss", "tensor wte.weight: relative distance"}),
      Not(HasSubstr("step 1: loss")));
  run(compared("other", "kept --within 1e-6"), 1);
  run(compared("other", "kept --within 0.1"), 0);
  run(compared("nowhere", "kept"), 1);
  // Rank 0 must end all ranks before training.
  run(training("step1_ddp_reference", "second", "--save-reference kept"), 2, {"already exists"});
  EXPECT_FALSE(fs::exists(folder_.path("second")));
}

TEST_F(Reference, AStoppedRunIsKeptWhenTheSameCommandHasEndedIt) {
  const std::string stopped =
      training("step1_ddp_reference", "stopped",
               "--steps 2000 --log-every 1 --save-reference kept --resume auto");
  Program program = start(stopped);
  ASSERT_TRUE(program.wait_for_output("step 20/2000")) << program.output();
  program.signal(SIGUSR1);
  EXPECT_EQ(program.wait(), 75) << program.output();
  EXPECT_THAT(program.output(), HasSubstr("no reference was kept"));
  EXPECT_FALSE(fs::exists(folder_.path("kept")));

  run(stopped, 0, {"reference: ", "to 2000, those since"});
  run(training("step3_naive_dp", "whole", "--steps 2000 --quiet"));
  run(compared("whole", "kept"), 0, {"to 2000: those that both have)"});
}

// It refuses before it builds anything, so this test needs no setup.
TEST_F(Reference, LauncherRefusesWhatAllStagesTogetherCannotDo) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--ranks 3", "1, 2, 4 or 8"},      {"--ranks 16", "1, 2, 4 or 8"},
      {"--steps 0", "a number from 1"},   {"--resume auto", "always starts anew"},
      {"--out here", "--out is not for"}, {"--micro-batch-size 2", "divides 8 rows"},
      {"--config file", "one by one"},    {"--dry-run", "it trains"}};
  for (const auto& [options, why] : cases)
    run(concat("bash ", one_word(LADDER_SOURCE "/ladder"), " run ", options), 2, {why});
}

}  // namespace
}  // namespace ladder
