// What the ledger cannot see: a process occupies little more memory than its tensors. Libraries,
// MPI and the allocator's own memory do not grow with the model, so a tiny model measures them.
#include <algorithm>
#include <cstdio>

#include "common/testing/process_test.hpp"

namespace ladder {
namespace {

// A second copy of the parameters takes 4 bytes each. In steps 1 and 2 libtorch's broadcast makes
// one, in two pieces of up to 250 MiB at a time, before training starts. In step 7 the heap has
// holes between units that are gathered and freed: 0.7 to 1.5 bytes, as messages happen to arrive.
// Elsewhere it keeps less: what is left from creating one unit.
double allowed_bytes_per_parameter(const std::string& step) {
  if (step == "step1_ddp_reference" || step == "step2_sharded_data") return 4;
  return step == "step7_zero3" ? 2 : 1;
}
constexpr double kSlack = 12 << 20;  // pages that MPI and the heap touch in some runs only

struct Use {
  double num_parameters = 0;
  double tensor_bytes = 0;  // the ledger's peak
  double unseen_bytes = 0;  // peak resident memory minus that
};

class Resident : public ProcessTest, public ::testing::WithParamInterface<std::string> {
 protected:
  // Measures the rank with most. SGD keeps no state, so unseen memory is a larger part of the
  // total.
  Use measure(const std::string& model) const {
    const std::string& step = GetParam();
    run(concat(step == "step0_single_gpu" ? "" : mpirun(2), trainer(step),
               "--heads 4 --context 16 --micro-batch-size 1 ", model,
               step == "step9_diloco" ? " --sync-every 2" : "",
               " --optimizer sgd --steps 2 --quiet --out run"));
    const Json report = report_of();
    Use use = {report["num_parameters"].get<double>()};
    for (const Json& memory : report["memory"]) {
      const double in_tensors =
          std::max(memory["peak"].get<double>(), memory["save_peak"].get<double>());
      use.tensor_bytes = std::max(use.tensor_bytes, in_tensors);
      use.unseen_bytes =
          std::max(use.unseen_bytes, memory["resident_peak"].get<double>() - in_tensors);
      EXPECT_LE(memory["resident"], memory["resident_peak"]);
      EXPECT_GE(memory["resident"], memory["live_at_step_end"]);
    }
    std::filesystem::remove_all(folder_.path("run"));
    return use;
  }
};

// The second large model: logits, their gradients and the gradient of the embedding are large, come
// and go in every step, and are not all alike. A heap would leave gaps: it grew to twice the
// tensors and more. What MPI buffers depends on the moment.
TEST_P(Resident, IsWhatTheLedgerCountsAndLittleMore) {
  const Use tiny = measure("--layers 2 --channels 32");
  const Use large = measure("--layers 16 --channels 384");
  const double num_more = large.num_parameters - tiny.num_parameters;
  ASSERT_GT(num_more, 25e6);
  const double more_bytes = large.unseen_bytes - tiny.unseen_bytes;
  EXPECT_LE(more_bytes, allowed_bytes_per_parameter(GetParam()) * num_more + kSlack);
  const Use wide = measure(
      "--layers 2 --channels 32 --vocab-size 50304 --num-microbatches 2 --micro-batch-size 16");
  const double more_of_wide = wide.unseen_bytes - tiny.unseen_bytes;
  EXPECT_GT(wide.tensor_bytes, 100 << 20);
  EXPECT_LE(more_of_wide, 0.3 * wide.tensor_bytes + 2 * kSlack);
  std::printf(
      "%s: %.2f bytes per parameter that no ledger counts (baseline %.0f MiB); with a vocabulary "
      "of GPT-2's size %.0f MiB, %.0f MiB of tensors\n",
      GetParam().c_str(), more_bytes / num_more, tiny.unseen_bytes / (1 << 20),
      more_of_wide / (1 << 20), wide.tensor_bytes / (1 << 20));
}

INSTANTIATE_TEST_SUITE_P(Steps, Resident, ::testing::ValuesIn(words(LADDER_STEPS)),
                         [](const auto& step) { return step.param; });

}  // namespace
}  // namespace ladder
