#include "step8_pipeline_ga/pipeline_options.hpp"

#include "common/testing/expect_throws.hpp"
#include "common/testing/parse_options.hpp"
#include "step8_pipeline_ga/train.hpp"

namespace ladder {
namespace {

CommandLine parse(const std::vector<const char*>& words) {
  return parse_words(step8::trainer(), words);
}

void refused(const std::vector<const char*>& words, const std::vector<std::string>& parts,
             const std::source_location& where = std::source_location::current()) {
  expect_refused(step8::trainer(), words, parts, where);
}

TEST(PipelineOptions, ATakesAFlushInMicrobatchesOrInRows) {
  const TrainOptions o =
      parse({"--local-batch-size", "12", "--micro-batch-size", "2", "--accumulation", "3"}).options;
  EXPECT_EQ(o.data.num_microbatches, 6);
  EXPECT_EQ(microbatches_per_step(o), 18);
  EXPECT_EQ(rows_per_step(o, 1), 36);
  EXPECT_EQ(rows_per_step(o, 8), 8 * 36);  // of all replicas
  EXPECT_EQ(parse({}).options.data.num_microbatches, 4);
  EXPECT_EQ(microbatches_per_step(parse({"--num-microbatches", "5"}).options), 5);
  EXPECT_EQ(parse({"--pipeline-schedule", "zero-bubble"}).options.get<PipelineOptions>().schedule,
            Schedule::kZeroBubble);
}

// A message about several options has the values of all.
TEST(PipelineOptions, ARefusesABatchThatDoesNotDivide) {
  refused(
      {"--local-batch-size", "9", "--micro-batch-size", "2", "--pipeline-stages", "3"},
      {"--micro-batch-size 2, --local-batch-size 9, --pipeline-stages 3: 9 rows do not divide"});
  refused({"--micro-batch-size", "0"}, {"--micro-batch-size is 0"});
  refused({"--local-batch-size", "-2"}, {"--local-batch-size is -2"});
  refused({"--num-microbatches", "2", "--pipeline-stages", "3"},
          {"--micro-batch-size 4, --num-microbatches 2, --pipeline-stages 3", "it has 2"});
  refused({"--local-batch-size", "8", "--num-microbatches", "2"}, {"say the same"});
  refused({"--pipeline-stages", "-1"}, {"--pipeline-stages is -1"});
  refused({"--accumulation", "0"}, {"--accumulation is 0"});
  refused({"--chunks-per-stage", "2"}, {"only --pipeline-schedule interleaved"});
  refused({"--pipeline-schedule", "interleaved"}, {"needs 2 or more"});
  refused({"--pipeline-schedule", "1b1f"},
          {"it must be gpipe or 1f1b or interleaved or zero-bubble"});
}

TEST(PipelineOptions, DocumentsPerStepReplaceTheNumberOfMicrobatches) {
  const TrainOptions o = parse({"--docs-per-step", "12", "--pipeline-stages", "3"}).options;
  EXPECT_EQ(o.get<PipelineOptions>().docs_per_step, 12);
  EXPECT_EQ(microbatches_per_step(o), 1);  // fetched at a time
  EXPECT_EQ(num_stages_of(o, 6), 3);       // a flush of any size
  refused({"--docs-per-step", "-1"}, {"--docs-per-step is -1"});
  refused({"--docs-per-step", "5", "--num-microbatches", "2"}, {"give only one of them"});
  refused({"--docs-per-step", "5", "--accumulation", "2"}, {"leave out --accumulation 2"});
  refused({"--docs-per-step", "5", "--local-batch-size", "8"}, {"leave out --local-batch-size 8"});
  refused({"--docs-per-step", "5", "--overfit-one-batch"}, {"--overfit-one-batch reads the same"});
}

TEST(PipelineOptions, ThePipelinesStagesFollowFromTheRanks) {
  const TrainOptions any = parse({"--num-microbatches", "6"}).options;
  EXPECT_EQ(num_stages_of(any, 3), 3);
  EXPECT_THROW(num_stages_of(any, 7), UsageError);  // more stages than microbatches
  const TrainOptions two = parse({"--pipeline-stages", "2"}).options;
  EXPECT_EQ(num_stages_of(two, 6), 2);
  expect_throws<UsageError>([&] { num_stages_of(two, 5); }, {"does not divide 5 rank(s)"});
  const TrainOptions chunks =
      parse({"--pipeline-schedule", "interleaved", "--chunks-per-stage", "2"}).options;
  EXPECT_EQ(num_stages_of(chunks, 2), 2);
  expect_throws<UsageError>([&] { num_stages_of(chunks, 1); },
                            {"--pipeline-schedule is interleaved", "nothing to interleave"});
}

}  // namespace
}  // namespace ladder
