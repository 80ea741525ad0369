// Mistakes in the real trainers, each of which the ladder must find: those of step3_naive_dp.wrong,
// step8_pipeline_ga.wrong and tensor_parallel.wrong, and, in steps 3 to 8 and tensor_parallel, every
// line that a trainer can do without.
// scripts/plant has planted them.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/flip.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <map>

#include "common/core/check.hpp"
#include "common/testing/planted_answer.hpp"
#include "common/testing/rank_test.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"
#include "step8_pipeline_ga/tensor_parallel/tensor_options.hpp"
#include "step8_pipeline_ga/train.hpp"
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
  options.set<TensorOptions>() = {};
  return options;
}

// Two tensor ranks, which each of two replicas or stages has. They wait for each other in every layer,
// so there are two steps.
TrainOptions on_tensor_ranks(TrainOptions options, int num_stages) {
  options.num_steps = 2;
  options.output.eval_every = options.output.eval_every > 0 ? 1 : 0;
  options.set<PipelineOptions>().num_stages = num_stages;
  options.set<TensorOptions>().num_ranks = 2;
  options.model.product_parts = 2;
  if (options.model.family == ModelFamily::kLlama) options.model.kv_heads = options.model.heads;
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

// An objective that does something in each place where step 8's loop asks for it; the next token
// asks for nothing there.
struct BusyObjective : StepObjective {
  explicit BusyObjective(const FlatModel& model) : params(model.params()) {}
  void start(Run& /*run*/, const BatchStream& /*batches*/) override { scale(0.9); }
  void prepare(Microbatches& batch, const BatchOrigin& /*origin*/) override {
    for (std::int64_t i = 0; i < batch.size(); ++i) batch[i].tokens = batch[i].tokens.flip(1);
  }
  void after_step() override { scale(0.99); }
  void scale(double factor) {
    const at::NoGradGuard no_grad;
    params.mul_(factor);
  }
  at::Tensor params;
};

// The rung that shows what a trainer is without this line.
Trainer rung_for(const PlantedAnswer& mistake) {
  Trainer rung = rung_of(step_of(mistake));
  if (mistake.name.find("without objective->") == std::string::npos) return rung;
  rung.train = [](const TrainOptions& options, Communicator& comm) {
    const auto make = [](const auto&, const auto&, const auto&, const FlatModel& model, auto&) {
      return std::make_unique<BusyObjective>(model);
    };
    return step8::train(options, comm, make);
  };
  return rung;
}

// What is wrong with the run on this rank, or why there is none.
std::string what_shows(Climber& climber, const Trainer& rung, const TrainOptions& options,
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

bool rank_0_says(bool value) {
  Communicator& comm = test_world().comm();
  return all_reduce_sum(comm.rank() == 0 && value ? 1.0 : 0.0, comm) > 0;
}

// Mistakes of a file show in the first step, and are played on two configurations; lines are left
// out on the first one.
TEST(PlantedMistakes, AreFound) {
  Climber climber;
  for (const Configuration& configuration : {covering_set()[1], covering_set()[2]}) {
    const bool has_full_rows = configuration.rows == Rows::kWindows;  // the second one
    std::map<std::string, FinishedRun> right;  // by trainer; a busy one is another
    int number = 0;
    for (const PlantedAnswer& mistake : planted_answers()) {
      ++number;
      const bool is_line = mistake.reason.empty(), counts = mistake.name.ends_with("denominator");
      if (mistake.num_ranks != climber.size() || (has_full_rows && (is_line || counts))) continue;
      const Trainer rung = rung_for(mistake);
      const bool is_busy = rung.train != rung_of(rung.step).train;
      const bool is_exact = mistake.name.find("exact sums") != std::string::npos;
      TrainOptions options = options_for_mistakes(climber, configuration);
      if (is_exact) options.gradient_sum = SumMode::kExact;
      const bool has_tensor_ranks = rung.step == tensor_trainer().step;
      if (has_tensor_ranks) options = on_tensor_ranks(options, 1);
      const bool has_rows = mistake.name.find("with rows") != std::string::npos;
      options.set<TensorOptions>().is_sequence_parallel = has_rows;
      const auto play = [&](const std::string& more) {
        const std::string name =
            concat(rung.step, is_busy ? ", busy" : "", is_exact ? ", exact sums" : "",
                   has_rows ? ", rows" : "", more);
        if (!right.contains(name)) {
          right[name] = climber.climb(rung, options);
          print_last_step(climber, concat(name, ", ", configuration.name()), right[name]);
        }
        play_answer(number);
        const std::string shown = what_shows(climber, rung, options, mistake, right[name]);
        play_answer(0);
        return shown;
      };
      std::string shown = play("");
      if (is_line && rank_0_says(shown.empty())) {  // an evaluation may have done the same
        options.output.eval_every = 0;
        shown = play(", not evaluated");
      }
      if (is_line && has_tensor_ranks && rank_0_says(shown.empty())) {
        options = on_tensor_ranks(options, 2);
        shown = play(", two stages");
      }
      if (climber.rank() != 0) continue;
      EXPECT_THAT(shown, AllOf(Not(""), HasSubstr(mistake.reason))) << mistake.name;
      if (is_line || is_exact || mistake.name.find("logged") != std::string::npos) continue;
      EXPECT_THAT(shown, HasSubstr("more than rounding")) << mistake.name;
      const char* embedding = configuration.is_llama ? "embed_tokens.weight" : "wte.weight";
      EXPECT_THAT(shown, HasSubstr(concat("tensor '", embedding, "' differs in "))) << mistake.name;
    }
  }
}

TEST(PlantedMistakes, ThereAreSomeInEachTrainer) {
  std::map<std::string, int> num_mistakes;
  for (const PlantedAnswer& mistake : planted_answers()) ++num_mistakes[step_of(mistake)];
  EXPECT_EQ(num_mistakes.size(), 7u);
  for (const auto& [step, number] : num_mistakes) EXPECT_GE(number, 6) << step;
}

}  // namespace
}  // namespace ladder
