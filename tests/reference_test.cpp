// A run kept as a reference, and others compared with it: real processes on two ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <sstream>

#include "common/core/check.hpp"
#include "common/testing/program.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/json.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

class Reference : public ::testing::Test {
 protected:
  // Two ranks, which leave a run in the folder `out`.
  ProgramResult train(const std::string& step, const std::string& out, const std::string& more) {
    return run(concat("env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ",
                      LADDER_MPIEXEC, " -n 2 --oversubscribe --bind-to none ", LADDER_BUILD, "/",
                      step, "/", step, " --layers 1 --heads 2 --channels 20 --context 16 ",
                      "--micro-batch-size 2 --steps 4 --out ", out, " ", more));
  }
  ProgramResult compare(const std::string& run_folder, const std::string& more = "") {
    return run(
        concat("python3 ", LADDER_SOURCE, "/scripts/compare_runs.py ", run_folder, " kept ", more));
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

TEST_F(Reference, NeverOverwritesOne) {
  ASSERT_EQ(train("step1_ddp_reference", "first", "--save-reference kept").exit_code, 0);
  const std::string before = read_text_file(folder_.path("kept/report.json"));
  const ProgramResult again = train("step1_ddp_reference", "second", "--save-reference kept");
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.output, HasSubstr("--save-reference kept is there already"));
  EXPECT_EQ(read_text_file(folder_.path("kept/report.json")), before);
  EXPECT_FALSE(std::filesystem::exists(folder_.path("second")));
}

}  // namespace
}  // namespace ladder
