#include "step8_pipeline_ga/schedule/schedule_drawing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/testing/expect_throws.hpp"
#include "step8_pipeline_ga/schedule/schedule_simulation.hpp"
#include "step8_pipeline_ga/train.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Timeline simulated(Schedule schedule, int num_stages, std::int64_t num_microbatches,
                   int chunks_per_stage = 1) {
  return simulate(plan_pipeline(schedule, num_stages, num_microbatches, chunks_per_stage), {});
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

std::size_t longest_line(const std::string& text) {
  std::istringstream lines(text);
  std::size_t longest = 0;
  for (std::string line; std::getline(lines, line) && line.starts_with("stage");) {
    longest = std::max(longest, line.size());
  }
  return longest;
}

// As in the header.
TEST(ScheduleDrawing, DrawsAScheduleAsText) {
  EXPECT_EQ(draw_text(simulated(Schedule::k1f1b, 2, 4), "slots"),
            "stage 0 |F0F1....B0==F2B1==F3B2==..B3==|\n"
            "stage 1 |..F0B0==F1B1==F2B2==F3B3==....|\n"
            "F forward, B backward, with the number of the microbatch; . idle\n"
            "15 slots; bubble: 25% of the ideal time, 20% of the total; live microbatches per "
            "stage: 2, 1\n");
}

TEST(ScheduleDrawing, DrawsHalvesAsText) {
  EXPECT_THAT(
      draw_text(simulated(Schedule::kZeroBubble, 3, 3), "slots"),
      StartsWith(
          "stage 0 |F0F1F2....I0W0I1W1I2W2|\n"
          "stage 1 |..F0F1..I0F2I1W0I2W1W2|\n"
          "stage 2 |....F0I0F1I1F2I2W0W1W2|\n"
          "F forward, I gradient of the input (dgrad), W gradient of the weights (wgrad), "));
}

// Two digits take three columns, a chunk one more; every computation shows all of it.
TEST(ScheduleDrawing, LabelsGrowWithMicrobatchesAndChunks) {
  const std::string two_digits = draw_text(simulated(Schedule::kGpipe, 2, 11));
  EXPECT_THAT(two_digits, AllOf(HasSubstr("F8-F9-F10.........B0===="), HasSubstr("B9====B10===")));
  const std::string chunks = draw_text(simulated(Schedule::kInterleaved, 2, 2, 2));
  EXPECT_THAT(chunks, AllOf(HasSubstr("stage 0 |F0aF1aF0bF1b"), HasSubstr("B0b===F1bB1b==="),
                            HasSubstr("a, b, … the chunk of the stage"),
                            HasSubstr("live microbatches per stage: 4, 3 (each chunk counts)")));
}

TEST(ScheduleDrawing, KeepsRowsShort) {
  for (const int num_stages : {4, 16}) {
    const std::string text = draw_text(simulated(Schedule::kInterleaved, num_stages, 16, 4), "s");
    EXPECT_LE(longest_line(text), 160u);
    EXPECT_GT(longest_line(text), 80u);
    EXPECT_EQ(count(text, "\nstage "), static_cast<std::size_t>(num_stages) - 1);
  }
  // Two columns for a forward have no room for its two digits.
  EXPECT_THAT(draw_text(simulated(Schedule::kGpipe, 2, 20)),
              AllOf(HasSubstr("F8F9F-F-F-"), HasSubstr("B9==B10=")));
}

// Any clock will do; a computation that takes no time is not seen, and messages are idle time.
Timeline measured() {
  return {{{{ActionKind::kForward, 0, 0}, 100.0, 100.2},
           {{ActionKind::kRecvGradient, 0, 0}, 100.2, 100.5},
           {{ActionKind::kBackward, 0, 0}, 100.5, 100.9}},
          {{{ActionKind::kForward, 1, 0}, 100.25, 100.25},
           {{ActionKind::kBackward, 1, 0}, 100.3, 100.5}}};
}

TEST(ScheduleDrawing, DrawsMeasuredTimelines) {
  EXPECT_THAT(draw_text(measured(), "s"),
              AllOf(StartsWith("stage 0 |F0"), HasSubstr("0.9 s; bubble: 125%")));
}

TEST(ScheduleDrawing, DrawsNothing) {
  EXPECT_THAT(draw_text({{}, {}}), StartsWith("stage 0 ||\nstage 1 ||\n"));
  EXPECT_THAT(trace_of({{}, {}}, "nothing"), HasSubstr(R"("dur":0.0)"));
}

// A second is a million microseconds; a stage's step is as long as the pipeline's.
TEST(ScheduleDrawing, ATraceHasTheStepAndWhatEachStageComputes) {
  const Json trace = parse_json(trace_of(measured(), "two stages"), "the trace");
  EXPECT_EQ(trace["otherData"]["step"], "two stages");
  EXPECT_EQ(trace["otherData"]["world_size"], 2);
  std::vector<std::string> events;
  for (const Json& event : trace["traceEvents"]) {
    const auto rounded = [&](const char* name) { return std::lround(event[name].get<double>()); };
    events.push_back(concat(event["pid"].get<int>(), " ", event["name"].get<std::string>(), " ",
                            rounded("ts"), " ", rounded("dur"), " ", to_text(event["args"])));
  }
  EXPECT_THAT(events, ElementsAre("1 step 0 900000 {\"step\":1}",
                                  "1 forward 0 200000 {\"microbatch\":0,\"chunk\":0}",
                                  "1 backward 500000 400000 {\"microbatch\":0,\"chunk\":0}",
                                  "2 step 0 900000 {\"step\":1}",
                                  "2 forward 250000 0 {\"microbatch\":0,\"chunk\":1}",
                                  "2 backward 300000 200000 {\"microbatch\":0,\"chunk\":1}"));
}

// A drawing of a million boxes shows nothing, and its plan takes minutes.
TEST(ScheduleDrawing, OfTooMuchIsRefused) {
  TrainOptions options;
  options.data.num_microbatches = 1000;
  expect_throws<UsageError>([&] { step8::show_schedule(options, 1000, /*is_trace=*/false); },
                            {"1000 stages (--pipeline-stages)",
                             "1000 microbatches (--num-microbatches)", "at most 100000"});
  for (const bool is_trace : {false, true})
    EXPECT_THAT(step8::show_schedule(options, 2, is_trace), HasSubstr("2 stages, 1000 microb"));
}

}  // namespace
}  // namespace ladder
