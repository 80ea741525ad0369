#include "step8_pipeline_ga/objectives/objective_options.hpp"

#include "common/testing/parse_options.hpp"
#include "step8_pipeline_ga/objectives/train.hpp"

namespace ladder {
namespace {

CommandLine parse(const std::vector<const char*>& words) {
  return parse_words(objectives::trainer(), words);
}

void refused(const std::vector<const char*>& words, const char* part) {
  expect_refused(objectives::trainer(), words, {part});
}

TEST(ObjectiveOptions, HaveTheirUnits) {
  const auto mean_over = [](const std::vector<const char*>& words) {
    return batch_shape(parse(words).options).mean_over;
  };
  EXPECT_EQ(mean_over({}), "target tokens");
  EXPECT_EQ(mean_over({"--objective", "dpo", "--dpo-reference", "runs/a"}), "pairs");
  EXPECT_EQ(mean_over({"--objective", "dpo", "--init-from", "runs/a", "--dpo-mean-over", "tokens",
                       "--dry-run"}),
            "answer tokens");
  EXPECT_EQ(mean_over({"--objective", "self_distillation"}), "samples");
}

TEST(ObjectiveOptions, RefuseWhatTheyCannotUse) {
  refused({"--objective", "ppo"}, "it must be lm or dpo or self_distillation");
  refused({"--objective", "dpo"}, "give --dpo-reference");
  refused({"--objective", "dpo", "--dpo-reference", "a", "--rows", "documents"}, "leave it out");
  refused({"--dpo-reference", "a"},
          "--dpo-reference a has no effect here: it is for --objective dpo");
  refused({"--dpo-reference-cache", "a"}, "it is for --objective dpo");
  refused({"--objective", "self_distillation", "--dpo-beta", "0.5"}, "it is for --objective dpo");
  refused({"--sinkhorn-scope", "batch"}, "it is for --objective self_distillation");
  parse({"--prototypes", "32", "--dpo-mean-over", "pairs"});  // their defaults
  refused({"--dpo-label-smoothing", "0.6"}, "--dpo-label-smoothing is 0.6");
  refused({"--prototypes", "1"}, "--prototypes is 1");
  refused({"--objective", "self_distillation", "--prototypes", "259"},
          "the size of the vocabulary, which is 258");
  refused({"--teacher-momentum", "1.1"}, "--teacher-momentum is 1.1");
  refused({"--objective", "self_distillation", "--micro-batch-size", "1"},
          "--micro-batch-size 2 or more, or --sinkhorn-scope batch");
  parse({"--micro-batch-size", "1"});
  parse(
      {"--objective", "self_distillation", "--micro-batch-size", "1", "--sinkhorn-scope", "batch"});
}

}  // namespace
}  // namespace ladder
