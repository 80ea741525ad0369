// Step 0 as a user runs it on a GPU: a process with options, an exit code and a report.
#include "common/testing/process_test.hpp"

namespace ladder {
namespace {

using ::testing::AnyOf;

class GpuProgram : public ProcessTest {};

TEST_F(GpuProgram, Trains) {
  run(one_word(LADDER_PROGRAM) + " --device cuda --steps 2 --memory-cap-mb 8192 --out run");
  const Json report = report_of();
  EXPECT_EQ(report["losses"].size(), 2u);
  EXPECT_THAT(report.at("attention_backend").get<std::string>(),
              AnyOf("flash", "efficient", "math"))
      << "the default is --deterministic true, which rules out cuDNN";
}

}  // namespace
}  // namespace ladder
