// A model that does not fit: under a cap on tensor memory, --memory-cap-mb, steps 7 and 8 train a
// model on four ranks that steps 0 to 6 cannot. These say so and leave no files behind.
#include "common/testing/process_test.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;

// Twenty-four blocks of 128 channels: 4,793,856 parameters, 18.3 MiB of fp32.
constexpr double kParametersMb = 4793856 * 4.0 / (1 << 20);

class MemoryCap : public ProcessTest {
 protected:
  void train(const std::string& step, const std::string& more, int exit_code,
             const std::vector<std::string>& says = {}) const {
    run(concat(step == "step0_single_gpu" ? "" : mpirun(4), trainer(step),
               "--layers 24 --heads 4 --channels 128 --context 16 --micro-batch-size 1 "
               "--steps 4 --quiet --out run ",
               more),
        exit_code, says);
  }

  void expect_refused(const std::string& step, const std::string& more) {
    train(step, more, 1,
          {"error: out of memory: ", " already held; the cap is ", "--memory-cap-mb"});
    EXPECT_FALSE(fs::exists(folder_.path("run/checkpoints")));
    fs::remove_all(folder_.path("run"));
  }

  // Trains, and returns the peak of tensor memory, in MiB, on the rank with the highest peak.
  double expect_trained(const std::string& step, const std::string& more) {
    SCOPED_TRACE(step);
    train(step, more, 0);
    const Json report = report_of();
    EXPECT_EQ(report["num_parameters"], 4793856);
    EXPECT_EQ(report["losses"].size(), 4u);
    EXPECT_EQ(report["world_size"], 4);
    const int num_stages = step == "step8_pipeline_ga" ? 4 : 1;
    EXPECT_EQ(report["data_parallel_size"], 4 / num_stages);
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
};

// The cap is smaller than the parameters alone. SGD keeps no state: 8/N bytes per parameter.
TEST_F(MemoryCap, OnlySteps7And8TrainAModelLargerThanARank) {
  const std::string cap = concat("--optimizer sgd --lr 0.1 --memory-cap-mb ", 0.95 * kParametersMb);
  const std::vector<std::string> steps = words(LADDER_STEPS);
  for (std::size_t step = 0; step <= 6; ++step) expect_refused(steps[step], cap);
  for (const std::size_t step : {7u, 8u}) {
    const double peak = expect_trained(steps[step], cap);
    EXPECT_LT(peak, 0.95 * kParametersMb);
    EXPECT_GT(peak, 0.5 * kParametersMb);  // the shards, or the stages, alone: close to the cap
  }
}

}  // namespace
}  // namespace ladder
