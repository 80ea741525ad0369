// Step 0 as a user runs it on a GPU: a process with options, an exit code and a report.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/testing/program.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/checkpoint/disk.hpp"

namespace ladder {
namespace {

using ::testing::AnyOf;

TEST(GpuProgram, Trains) {
  const TempFolder folder;
  const std::string options = " --device cuda --steps 2 --memory-cap-mb 8192 --out run";
  const ProgramResult run =
      run_program(words(concat(one_word(LADDER_PROGRAM), options)), folder.path());
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const Json report = parse_json(read_text_file(folder.path("run/report.json")), "report.json");
  EXPECT_EQ(report["losses"].size(), 2u);
  EXPECT_THAT(report.at("attention_backend").get<std::string>(),
              AnyOf("flash", "efficient", "math"))
      << "the default is --deterministic true, which rules out cuDNN";
}

}  // namespace
}  // namespace ladder
