// A model that does not fit: under a cap on tensor memory, --memory-cap-mb, steps 7 and 8 train a
// model on four ranks that steps 0 to 6 cannot. These say so and leave no files behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/testing/program.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/checkpoint/disk.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Twenty-four blocks of 128 channels: 4,793,856 parameters, 18.3 MiB of fp32.
constexpr double kParametersMb = 4793856 * 4.0 / (1 << 20);

class MemoryCap : public ::testing::Test {
 protected:
  ProgramResult train(const std::string& step, int num_ranks, const std::string& more) {
    const std::string program = one_word(concat(LADDER_BUILD, "/", step, "/", step));
    const std::string launch =
        num_ranks == 1 ? "" : concat(mpi_launch(LADDER_MPIEXEC), "-n ", num_ranks, " ");
    return run_program(words(concat(launch, program,
                                    " --layers 24 --heads 4 --channels 128 --context 16 "
                                    "--micro-batch-size 1 --steps 4 --quiet --out run ",
                                    more)),
                       folder_.path());
  }

  // Expects an error about memory of this kind.
  void expect_refused(const std::string& step, int num_ranks, const std::string& more,
                      const std::string& kind = "") {
    SCOPED_TRACE(step);
    const ProgramResult result = train(step, num_ranks, more);
    EXPECT_EQ(result.exit_code, 1) << result.output;
    EXPECT_THAT(result.output,
                AllOf(HasSubstr("error: out of memory: "), HasSubstr(concat(" bytes of ", kind)),
                      HasSubstr(" already held; the cap is "), HasSubstr("--memory-cap-mb")));
    EXPECT_FALSE(fs::exists(folder_.path("run/checkpoints")));
    fs::remove_all(folder_.path("run"));
  }

  // Trains, and returns the peak of tensor memory, in MiB, on the rank with the highest peak.
  double expect_trained(const std::string& step, int num_ranks, const std::string& more) {
    SCOPED_TRACE(step);
    const ProgramResult result = train(step, num_ranks, more);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    if (result.exit_code != 0) return 0;
    const Json report = parse_json(read_text_file(folder_.path("run/report.json")), "report");
    EXPECT_EQ(report["num_parameters"], 4793856);
    EXPECT_EQ(report["losses"].size(), 4u);
    EXPECT_EQ(report["world_size"], num_ranks);
    const int num_stages = step == "step8_pipeline_ga" ? num_ranks : 1;
    EXPECT_EQ(report["data_parallel_size"], num_ranks / num_stages);
    EXPECT_EQ(report["pipeline_stages"], num_stages);
    EXPECT_TRUE(fs::exists(folder_.path("run/checkpoints/step_000004/model.safetensors")));
    double most = 0;
    for (const Json& memory : report["memory"]) {
      most = std::max(most, memory["peak"].get<double>());
      // Saving needs one unit at a time on top of what is held, which is always within the cap.
      EXPECT_GE(memory["save_peak"], memory["live_at_step_end"]);
      EXPECT_LT(memory["save_peak"].get<double>(), memory["live_at_step_end"].get<double>() + 4e6);
    }
    // Rank 0 gathers all that it writes.
    EXPECT_GT(report["memory"][0]["save_peak"], report["memory"][0]["live_at_step_end"]);
    fs::remove_all(folder_.path("run"));
    return most / (1 << 20);
  }

  TempFolder folder_;
};

const std::vector<std::string> kDataParallel = {"step1_ddp_reference", "step2_sharded_data",
                                                "step3_naive_dp",      "step4_bucketed_ddp",
                                                "step5_zero1",         "step6_zero2"};

// The cap is smaller than the parameters alone. SGD keeps no state: 8/N bytes per parameter.
TEST_F(MemoryCap, OnlySteps7And8TrainAModelLargerThanARank) {
  const std::string cap = concat("--optimizer sgd --lr 0.1 --memory-cap-mb ", 0.95 * kParametersMb);
  expect_refused("step0_single_gpu", 1, cap);
  for (const std::string& step : kDataParallel) expect_refused(step, 4, cap);
  for (const std::string step : {"step7_zero3", "step8_pipeline_ga"}) {
    const double peak = expect_trained(step, 4, cap);
    EXPECT_LT(peak, 0.95 * kParametersMb);
    EXPECT_GT(peak, 0.5 * kParametersMb);  // the shards, or the stages, alone: close to the cap
  }
}

// AdamW takes 16/N bytes per parameter in step 7, and 4 + 12/N in step 6: at four ranks 4 and 7.
TEST_F(MemoryCap, WithAdamWStep7TakesLessThanStep6CanDoWith) {
  const std::string cap = concat("--memory-cap-mb ", 6.5 / 4 * kParametersMb);
  expect_refused("step5_zero1", 4, cap);
  expect_refused("step6_zero2", 4, cap, "optimizer state");
  EXPECT_GT(expect_trained("step7_zero3", 4, cap), kParametersMb);
  EXPECT_GT(expect_trained("step6_zero2", 4, "--memory-cap-mb 200"), 7.0 / 4 * kParametersMb);
}

TEST_F(MemoryCap, ANegativeCapIsRefused) {
  const ProgramResult result = train("step0_single_gpu", 1, "--memory-cap-mb -1");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, HasSubstr("--memory-cap-mb"));
}

}  // namespace
}  // namespace ladder
