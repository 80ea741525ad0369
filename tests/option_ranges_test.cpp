// Every option that takes a number gets values that are none, and values that nobody can mean. Each
// is refused by the option's name, or taken; and what is taken can be described and added up
// without an overflow, which a sanitizer would see.
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "common/comm/self_communicator.hpp"
#include "common/testing/parse_options.hpp"
#include "common/train/dry_run.hpp"
#include "common/train/memory_need.hpp"
#include "common/train/sends.hpp"
#include "step0_single_gpu/cuda_graphs/train.hpp"
#include "step0_single_gpu/train.hpp"
#include "step3_naive_dp/why_does_it_hang/train.hpp"
#include "step4_bucketed_ddp/train.hpp"
#include "step7_zero3/train.hpp"
#include "step8_pipeline_ga/objectives/train.hpp"
#include "step8_pipeline_ga/tensor_parallel/tensor_options.hpp"
#include "step8_pipeline_ga/train.hpp"
#include "step9_diloco/elastic/elastic_options.hpp"
#include "step9_diloco/train.hpp"

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
                          "1e-46",
                          "1e308",
                          "1e999",
                          "inf",
                          "-inf",
                          "nan"};

// The names of all options that take a number, by those of the odd values that they take. None takes
// one that fp32 has no other number for than 0.
const std::map<Texts, Texts> kTaken = {
    {{},
     {"threads", "layers", "heads", "channels", "loss-scale", "simulate-ranks", "chunks-per-stage",
      "prototypes", "sync-every", "fragments", "workers", "trainer", "product-parts",
      "tensor-ranks", "nccl-timeout" /* of GPUs, on which workers that may die do not train */,
      "rope-theta" /* of gpt2 */}},
    {{"0"},
     {"microbatches-per-step" /* with exact sums */,
      "steps" /* whole rounds */,
      "kv-heads" /* gpt2 has as many as heads */,
      "no-rope-interval" /* and all layers have positions */,
      "head-channels" /* and equal shares */,
      "ranks",
      "rank",
      "ranks-per-machine",
      "prefetch",
      "shard-ranks",
      "pipeline-stages",
      "sync-delay",
      "worker",
      "min-lr" /* at most --lr */,
      "beta1",
      "beta2",
      "dpo-label-smoothing",
      "teacher-momentum",
      "view-noise",
      "alpha",
      "outer-momentum"}},
    {{"", "0", "65537"}, {"check-collectives"}},
    {{"65537"}, {"context", "bucket-mb", "patience", "round-timeout"}},
    {{"0", "65537"}, {"memory-cap-mb", "mlp-channels", "weight-decay"}},
    {{"65537", "2147483648"},
     {"micro-batch-size", "num-microbatches", "accumulation", "loss-scale-window", "log-every"}},
    {{"0", "2147483648"}, {"local-batch-size" /* whole microbatches */}},
    {{"0", "65537", "2147483648"},
     {"eval-samples", "vocab-size", "warmup-steps", "eval-every", "save-every", "keep",
      "docs-per-step"}},
    {{"65537", "2147483648", "9223372036854775807", "9223372036854775808"},
     {"eps", "norm-eps", "dpo-beta", "student-temperature", "teacher-temperature"}},
    {{"0", "65537", "2147483648", "9223372036854775807", "9223372036854775808"},
     {"seed", "lr", "clip-norm", "outer-lr"}},
};

// What options need next to them to have an effect.
const std::map<std::string, std::vector<const char*>> kNeededBy = {
    {"eval-samples", {"--eval-every", "5"}},
    {"loss-scale", {"--precision", "fp16"}},
    {"loss-scale-window", {"--precision", "fp16"}},
    {"dpo-beta", {"--objective", "dpo", "--dpo-reference", "a"}},
    {"dpo-label-smoothing", {"--objective", "dpo", "--dpo-reference", "a"}},
    {"prototypes", {"--objective", "self_distillation"}},
    {"student-temperature", {"--objective", "self_distillation"}},
    {"teacher-temperature", {"--objective", "self_distillation"}},
    {"teacher-momentum", {"--objective", "self_distillation"}},
    {"view-noise", {"--objective", "self_distillation"}},
};

// A trainer with the options of all steps, and with these.
template <class... More>
Theory step_with() {
  Theory theory = {
      .step = "step_x",
      .state_bytes = [](const TrainOptions&, int, int) { return StateBytes(); },
      .sends = [](const TrainOptions&, const StepsTaken&, int, int) { return std::vector<Send>(); },
      .mesh = step8::trainer().mesh};
  theory.options.data.num_microbatches = step8::trainer().options.data.num_microbatches;
  theory.options.own =
      step_options<OracleOptions, HangOptions, BucketOptions, ShardOptions, PrefetchOptions,
                   PipelineOptions, TensorOptions, ObjectiveOptions, DilocoOptions, More...>();
  return theory;
}

TEST(OptionRanges, OddNumbersAreRefusedByNameOrTaken) {
  const Theory trainer = step_with<ElasticOptions>();
  std::map<Texts, Texts> taken;
  const Json defaults = to_json(parse_words(trainer, {}).options);
  for (const auto& [name, value] : defaults.items()) {
    if (!value.is_number()) continue;
    const std::string option = "--" + name;
    Texts taken_by_this;
    for (const std::string& odd : kOddValues) {
      try {
        const std::string word = concat(option, "=", odd);
        const auto needed = kNeededBy.find(name);
        std::vector<const char*> words;
        if (needed != kNeededBy.end()) words = needed->second;
        words.push_back(word.c_str());
        const TrainOptions options = parse_words(trainer, words).options;
        taken_by_this.insert(odd);
        describe_run(options, trainer, 1);
        check_memory(options, trainer, {}, 0x1p62);
      } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), HasSubstr(option)) << odd;
      }
    }
    taken[taken_by_this].insert(name);
  }
  EXPECT_EQ(taken, kTaken);
}

TEST(ExactSums, RefuseWhatTheyCannotHave) {
  using Words = std::vector<const char*>;
  const auto exact = [](Words words) {
    words.insert(words.begin(), {"--gradient-sum", "exact", "--microbatches-per-step", "24",
                                 "--transport", "threads"});
    return words;
  };
  expect_refused(step_with<>(), {"--microbatches-per-step", "24"}, {"with --gradient-sum exact"});
  const std::string conflict = "--gradient-sum exact does not go with ";
  for (const auto& [words, part] : std::vector<std::pair<Words, std::string>>{
           {{"--num-microbatches", "2"},
            "--microbatches-per-step 24 and --num-microbatches 2 both"},
           {{"--precision", "bf16", "--grad-dtype", "bf16"}, conflict + "--grad-dtype"},
           {{"--simulate-ranks", "2"}, conflict + "--simulate-ranks"},
           {{"--docs-per-step", "9"}, conflict + "--docs-per-step"},
           {{"--objective", "self_distillation"}, conflict + "--objective"},
           {{"--wire", "int8"}, conflict + "--wire"},
           {{"--local-batch-size", "8"},
            "--local-batch-size 8 and --microbatches-per-step 24 both"}})
    expect_refused(step_with<>(), exact(words), {part});
  for (const auto& [words, num_microbatches] : std::vector<std::pair<Words, int>>{
           {{"--ranks", "5", "--pipeline-stages", "1"}, 5},
           {{"--ranks", "8", "--pipeline-stages", "2"}, 6},
           {{"--ranks", "5", "--accumulation", "2"}, 12},
           {{"--ranks", "8", "--pipeline-stages", "2", "--accumulation", "4"}, 2}}) {
    const TrainOptions options = parse_words(step_with<>(), exact(words)).options;
    EXPECT_EQ(options.data.num_microbatches, num_microbatches);
    EXPECT_EQ(microbatches_of_all(options, /*num_replicas=*/77), 24);
  }
  // What has no hooks on its gradients' sum.
  SelfCommunicator alone;
  const Trainer trainer = cuda_graphs::trainer();
  const Words words = {"--gradient-sum", "exact", "--device", "cpu", "--quiet"};
  expect_throws<UsageError>([&] { trainer.train(parse_words(trainer, words).options, alone); },
                            {"--gradient-sum exact is for steps 0 to 9, not for cuda_graphs"});
}

}  // namespace
}  // namespace ladder
