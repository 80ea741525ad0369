// Mistakes in the real trainers, each of which the ladder must find: those of step3_naive_dp.wrong
// and step8_pipeline_ga.wrong, and, in steps 3 to 8, every line that a trainer can do without.
// scripts/plant has planted them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <map>

#include "common/core/check.hpp"
#include "common/testing/planted_answer.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"
#include "tests/parity/climber.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Three microbatches; of step 8 two stages with two flushes of them.
TrainOptions options_for_mistakes(const Climber& climber, const Configuration& configuration) {
  TrainOptions options = climber.options(configuration);
  options.set<PipelineOptions>() = {
      .num_stages = 2, .schedule = Schedule::k1f1b, .accumulation = 2};
  return options;
}

std::string step_of(const PlantedAnswer& mistake) {
  return mistake.name.substr(0, mistake.name.find(':'));
}

// Prints the results of the last step, which step 3's lesson quotes.
void print_last_step(const Climber& climber, const std::string& name, const FinishedRun& run) {
  if (climber.rank() != 0) return;
  std::printf("  %-75s loss %.7f   gradient norm %.4f\n", name.c_str(), run.report.losses.back(),
              run.report.grad_norms.back());
}

// On this rank: what is wrong with the run, or why there is none.
std::string what_shows(Climber& climber, const Rung& rung, const TrainOptions& options,
                       const PlantedAnswer& mistake, const FinishedRun& right) {
  std::string all;
  try {
    const FinishedRun wrong = climber.climb_on(climber.size(), rung, options);
    for (const std::string& line : differences(wrong, right)) all += line + "\n";
    if (!mistake.reason.empty()) print_last_step(climber, mistake.name, wrong);
  } catch (const std::exception& error) {
    all = error.what();
  }
  climber.wait_for_all();
  return all;
}

// Those that stand in a file show in the first step, and are played on two configurations; lines
// are left out on the first one.
TEST(PlantedMistakes, AreFound) {
  Climber climber;
  for (const Configuration& configuration : {covering_set()[1], covering_set()[2]}) {
    const bool has_full_rows = configuration.rows == Rows::kWindows;  // the second one
    const TrainOptions options = options_for_mistakes(climber, configuration);
    std::map<std::string, FinishedRun> right;
    int number = 0;
    for (const PlantedAnswer& mistake : planted_answers()) {
      ++number;
      const bool is_line = mistake.reason.empty(), counts = mistake.name.ends_with("denominator");
      if (mistake.num_ranks != climber.size() || (has_full_rows && (is_line || counts))) continue;
      const Rung& rung = rung_of(step_of(mistake));
      if (!right.contains(rung.step())) {
        right[rung.step()] = climber.climb(rung, options);
        print_last_step(climber, concat(rung.step(), ", ", configuration.name()),
                        right[rung.step()]);
      }
      play_answer(number);
      const std::string shown = what_shows(climber, rung, options, mistake, right[rung.step()]);
      play_answer(0);
      if (climber.rank() != 0) continue;
      EXPECT_THAT(shown, AllOf(Not(""), HasSubstr(mistake.reason))) << mistake.name;
      if (is_line) continue;
      EXPECT_THAT(shown, HasSubstr("more than rounding")) << mistake.name;
      const char* embedding = configuration.is_llama ? "embed_tokens.weight" : "wte.weight";
      EXPECT_THAT(shown, HasSubstr(concat("tensor '", embedding, "' differs in "))) << mistake.name;
    }
  }
}

TEST(PlantedMistakes, ThereAreSomeInEachTrainer) {
  std::map<std::string, int> num_mistakes;
  for (const PlantedAnswer& mistake : planted_answers()) ++num_mistakes[step_of(mistake)];
  EXPECT_EQ(num_mistakes.size(), 6u);
  for (const auto& [step, number] : num_mistakes) EXPECT_GE(number, 6) << step;
}

}  // namespace
}  // namespace ladder
