// Every option that takes a number gets values that are none, and values that nobody can mean. Each is
// refused by the option's name, or taken; and what is taken can be described and added up without an
// overflow, which a sanitizer would see.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "common/core/check.hpp"
#include "common/train/memory_need.hpp"
#include "common/train/options/command_line.hpp"
#include "common/train/run_main.hpp"

namespace ladder {
namespace {

using ::testing::HasSubstr;

using Texts = std::set<std::string>;

const Texts kOddValues = {"",
                          "x",
                          "1x",
                          "-9223372036854775809",
                          "-9223372036854775808",
                          "-1",
                          "-1e-320",
                          "0",
                          "65537",
                          "2147483648",
                          "9223372036854775807",
                          "9223372036854775808",
                          "1e-320",
                          "1e308",
                          "1e999",
                          "inf",
                          "-inf",
                          "nan"};

// The names of all options that take a number, by those of the odd values that they take.
const std::map<Texts, Texts> kTaken = {
    {{},
     {"threads", "layers", "heads", "channels", "loss-scale", "simulate-ranks", "chunks-per-stage",
      "prototypes", "sync-every", "fragments", "workers", "min-workers", "join-timeout",
      "round-timeout", "patience"}},
    {{"0"},
     {"steps" /* whole rounds */, "ranks", "prefetch", "pipeline-stages", "sync-delay", "worker"}},
    {{"0", "1e-320"},
     {"beta1", "beta2", "dpo-label-smoothing", "teacher-momentum", "view-noise", "alpha",
      "outer-momentum"}},
    {{"65537"}, {"context", "bucket-mb"}},
    {{"0", "65537"}, {"memory-cap-mb"}},
    {{"1e-320", "65537"}, {"nccl-timeout"}},
    {{"0", "1e-320", "65537"}, {"weight-decay"}},
    {{"65537", "2147483648"},
     {"micro-batch-size", "num-microbatches", "accumulation", "loss-scale-window", "log-every"}},
    {{"0", "2147483648"}, {"local-batch-size" /* whole microbatches */}},
    {{"0", "65537", "2147483648"},
     {"eval-samples", "vocab-size", "warmup-steps", "eval-every", "save-every", "keep",
      "docs-per-step"}},
    {{"0", "65537", "2147483648", "9223372036854775807", "9223372036854775808"}, {"seed"}},
    {{"1e-320", "65537", "2147483648", "9223372036854775807", "9223372036854775808"},
     {"eps", "dpo-beta", "student-temperature", "teacher-temperature"}},
    {{"0", "1e-320", "65537", "2147483648", "9223372036854775807", "9223372036854775808"},
     {"lr", "min-lr", "clip-norm", "outer-lr"}},
};

const std::set<OptionGroup> kAllGroups = {OptionGroup::kSimulatedRanks, OptionGroup::kReference,
                                          OptionGroup::kCudaGraphs,     OptionGroup::kBuckets,
                                          OptionGroup::kPrefetch,       OptionGroup::kPipeline,
                                          OptionGroup::kDiloco};

TrainOptions parse_all_groups(const std::vector<std::string>& more) {
  std::vector<const char*> words = {"step_x"};
  for (const std::string& word : more) words.push_back(word.c_str());
  return parse_command_line(static_cast<int>(words.size()), words.data(), "step_x", kAllGroups)
      .options;
}

TEST(OptionRanges, OddNumbersAreRefusedByNameOrTaken) {
  const Trainer trainer{.step = "step_x",
                        .train = nullptr,
                        .state_bytes = [](const TrainOptions&, int, int) { return StateBytes(); },
                        .step_traffic = [](const TrainOptions&, int, int) { return Traffic(); },
                        .groups = kAllGroups};
  std::map<Texts, Texts> taken;
  const Json defaults = to_json(parse_all_groups({}));
  for (const auto& [name, value] : defaults.items()) {
    if (!value.is_number()) continue;
    Texts taken_by_this;
    for (const std::string& odd : kOddValues) {
      try {
        const TrainOptions options = parse_all_groups({"--" + name, odd});
        taken_by_this.insert(odd);
        describe_run(options, trainer, 1);
        check_memory(options, trainer, {}, 0x1p62);
      } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), HasSubstr("--" + name)) << odd;
      }
    }
    taken[taken_by_this].insert(name);
  }
  EXPECT_EQ(taken, kTaken);
}

}  // namespace
}  // namespace ladder
