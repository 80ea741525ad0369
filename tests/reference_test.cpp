// A run kept as a reference and others compared with it, as real processes on two ranks. Also, what
// the launcher refuses to run.
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

class Reference : public ::testing::Test {
 protected:
  // Runs two ranks, which leave a run in the folder `out`.
  std::string training(const std::string& step, const std::string& out, const std::string& more) {
    return concat(mpi_launch(LADDER_MPIEXEC), "-n 2 ",
                  one_word(concat(LADDER_BUILD, "/", step, "/", step)),
                  " --layers 1 --heads 2 --channels 20 --context 16 --micro-batch-size 2 ",
                  "--steps 4 --out ", out, " ", more);
  }
  ProgramResult train(const std::string& step, const std::string& out, const std::string& more) {
    return run(training(step, out, more));
  }
  ProgramResult compare(const std::string& run_folder, const std::string& more = "") {
    return run(concat("python3 ", one_word(concat(LADDER_SOURCE, "/scripts/compare_runs.py")), " ",
                      run_folder, " kept ", more));
  }
  ProgramResult run(const std::string& command) {
    return run_program(words(command), folder_.path());
  }

  TempFolder folder_;
};

TEST_F(Reference, OtherStepsEqualItAndOtherRunsAreToldWhereTheyPart) {
  ASSERT_EQ(train("step1_ddp_reference", "first", "--save-reference kept").exit_code, 0);
  ASSERT_EQ(train("step4_bucketed_ddp", "same", "--bucket-mb 0.01").exit_code, 0);
  const ProgramResult same = compare("same");
  EXPECT_EQ(same.exit_code, 0) << same.output;
  EXPECT_THAT(same.output, HasSubstr("equal to the bit: 4 steps"));

  ASSERT_EQ(train("step3_naive_dp", "other", "--weight-decay 0.2").exit_code, 0);
  const ProgramResult other = compare("other");
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.output, AllOf(HasSubstr("step 1: parameter norm"), HasSubstr("step 2: loss"),
                                  HasSubstr("tensor wte.weight: relative distance"),
                                  Not(HasSubstr("step 1: loss"))));
  EXPECT_EQ(compare("other", "--within 1e-6").exit_code, 1);
  EXPECT_EQ(compare("other", "--within 0.1").exit_code, 0);
  EXPECT_EQ(compare("nowhere").exit_code, 1);
}

// The cases are in common/train/reference_test.cpp; here rank 0 must end all ranks before training.
TEST_F(Reference, ImpossiblePlacesAreRefusedBeforeTraining) {
  ASSERT_EQ(train("step1_ddp_reference", "first", "--save-reference kept/").exit_code, 0);
  const std::string before = read_text_file(folder_.path("kept/report.json"));
  const auto expect = [&](const std::string& place, int code, const std::string& why) {
    const ProgramResult result =
        train("step1_ddp_reference", "second", concat("--save-reference ", place));
    EXPECT_EQ(result.exit_code, code) << result.output;
    EXPECT_THAT(result.output, HasSubstr(concat("--save-reference ", place, why)));
    EXPECT_FALSE(std::filesystem::exists(folder_.path("second")));
  };
  expect("kept", 2, " already exists");
  expect("second", 2, " is inside the run's own folder");
  expect("second/kept", 2, " is inside the run's own folder");
  expect("kept/report.json/deep", 1, ": cannot be created");
  EXPECT_EQ(read_text_file(folder_.path("kept/report.json")), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 2);
}

TEST_F(Reference, AStoppedRunIsKeptWhenTheSameCommandHasEndedIt) {
  const std::string more = "--steps 2000 --log-every 1 --save-reference kept --resume auto";
  Program program(words(training("step1_ddp_reference", "stopped", more)), folder_.path());
  ASSERT_TRUE(program.wait_for_output("step 20/2000")) << program.output();
  program.signal(SIGUSR1);
  EXPECT_EQ(program.wait(), 75) << program.output();
  EXPECT_THAT(program.output(), HasSubstr("no reference was kept"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path("kept")));

  const ProgramResult rest = train("step1_ddp_reference", "stopped", more);
  ASSERT_EQ(rest.exit_code, 0) << rest.output;
  EXPECT_THAT(rest.output, AllOf(HasSubstr("reference: "), HasSubstr("to 2000, those since")));
  ASSERT_EQ(train("step3_naive_dp", "whole", "--steps 2000 --quiet").exit_code, 0);
  const ProgramResult same = compare("whole");
  EXPECT_EQ(same.exit_code, 0) << same.output;
  EXPECT_THAT(same.output, HasSubstr("to 2000: those that both have taken)"));
}

// It refuses before it builds anything, so this test needs no setup.
TEST_F(Reference, LauncherRefusesWhatAllStagesTogetherCannotDo) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--ranks 3", "1, 2, 4 or 8"},      {"--ranks 16", "1, 2, 4 or 8"},
      {"--steps 0", "a number from 1"},   {"--resume auto", "always starts anew"},
      {"--out here", "--out is not for"}, {"--micro-batch-size 2", "divides 8 rows"},
      {"--config file", "one by one"},    {"--dry-run", "it trains"}};
  for (const auto& [options, why] : cases) {
    const ProgramResult result =
        run(concat("bash ", one_word(concat(LADDER_SOURCE, "/ladder")), " run ", options));
    EXPECT_EQ(result.exit_code, 2) << result.output;
    EXPECT_THAT(result.output, HasSubstr(why));
  }
}

}  // namespace
}  // namespace ladder
