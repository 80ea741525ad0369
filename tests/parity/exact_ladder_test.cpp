// The ladder of exact sums. A step's 24 microbatches (or 7) may be cut into any number of ranks,
// stages, replicas and flushes: the bits are those of step 0 as a plain loop, which simulates
// nothing. All that a run holds and sends is what theory says, as with sums in order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cmake/trainers.hpp"
#include "common/core/check.hpp"
#include "common/core/torch_types.hpp"
#include "common/optim/norm.hpp"
#include "common/testing/rank_test.hpp"
#include "common/train/build_model.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"
#include "step8_pipeline_ga/schedule/schedule_simulation.hpp"
#include "step9_diloco/diloco_options.hpp"
#include "tests/parity/climber.hpp"

namespace ladder {
namespace {

using ::testing::IsEmpty;

// With 24 microbatches, an epoch ends in step 3, which has three.
TrainOptions with_exact_sums(const Climber& climber, std::size_t configuration,
                             std::int64_t step_microbatches) {
  TrainOptions options = climber.options(covering_set()[configuration]);
  options.gradient_sum = SumMode::kExact;
  options.data.step_microbatches = step_microbatches;
  options.num_steps = step_microbatches == 24 ? 3 : 8;
  options.output.eval_every = 2;
  return options;
}

FinishedRun plain_loop(Climber& climber, const TrainOptions& options) {
  FinishedRun run;
  if (climber.rank() == 0) run = climber.ask_oracle(options, 1);
  climber.wait_for_all();
  return run;
}

// Compares on rank 0, which knows the other run.
void expect_same(const Climber& climber, const FinishedRun& run, const FinishedRun& wanted) {
  if (climber.rank() != 0) return;
  EXPECT_THAT(differences(run, wanted), IsEmpty());
  EXPECT_EQ(run.report.repeated_steps, wanted.report.repeated_steps);
  EXPECT_EQ(run.report.param_hash, wanted.report.param_hash);
}

// Pipelines on so many ranks: two of the schedules, each with another number of stages and flushes.
std::vector<PipelineOptions> pipelines_on(int num_ranks, bool is_first_half) {
  std::vector<int> stages;
  for (int p = num_ranks > 1 ? 2 : 1; p <= std::min(num_ranks, 5); ++p)
    if (num_ranks % p == 0) stages.push_back(p);
  const int fewest = stages.front(), most = stages.back();
  if (is_first_half && (num_ranks == 1 || num_ranks == 5))
    return {{.num_stages = most, .schedule = Schedule::kGpipe}};
  if (is_first_half)
    return {{.num_stages = most, .schedule = Schedule::kGpipe},
            {.num_stages = fewest, .schedule = Schedule::kInterleaved, .chunks_per_stage = 2}};
  return {{.num_stages = fewest, .schedule = Schedule::k1f1b, .accumulation = 2},
          {.num_stages = most, .schedule = Schedule::kZeroBubble}};
}

// Configurations in which all pairs of models, formats, optimizers, rows, and tied or not, occur. A
// third of the data-parallel steps and two pipelines climb each; all steps, on 5 and 8 ranks.
TEST(ExactLadder, EveryCutOfAStepIsThePlainLoop) {
  Climber climber;
  const std::size_t few = climber.size() <= 4 ? 3 : 1;
  std::size_t first = 0;
  for (const std::size_t i :
       few > 1 ? std::vector<std::size_t>{0, 1, 6, 3, 2, 4, 7} : std::vector<std::size_t>{1, 6}) {
    SCOPED_TRACE(concat(climber.size(), " ranks, ", covering_set()[i].name()));
    TrainOptions options = with_exact_sums(climber, i, i == 4 || i == 6 ? 7 : 24);
    const std::vector<PipelineOptions> pipelines = pipelines_on(climber.size(), i % 2 == 0);
    for (const PipelineOptions& own : pipelines)
      options.model.layers =
          std::max<std::int64_t>(options.model.layers, own.num_stages * own.chunks_per_stage);
    const FinishedRun plain = plain_loop(climber, options);
    for (std::size_t r = first++ % few; r < rungs().size(); r += few)
      expect_same(climber, climber.climb(rungs()[r], options), plain);
    for (const PipelineOptions& own : pipelines) {
      options.set<PipelineOptions>() = own;
      SCOPED_TRACE(concat(to_string(own.schedule), ", ", own.num_stages, " stages"));
      expect_same(climber, climber.climb(pipeline(), options), plain);
    }
  }
}

// The learning rate is so large that later steps leave the range, too: they are taken again.
TEST(ExactLadder, StepsThatLeaveTheRangeAreTakenAgain) {
  Climber climber;
  TrainOptions options = with_exact_sums(climber, 2, 24);
  options.lr.lr = 20;
  const FinishedRun plain = plain_loop(climber, options);
  if (climber.rank() == 0) {
    EXPECT_GT(plain.report.repeated_steps, 4);  // which the first step needs
  }
  for (const Trainer& rung :
       rungs())  // one that sums once a step, and those that do for each microbatch
    if (rung.step == "step3_naive_dp" || rung.sums_each_microbatch)
      expect_same(climber, climber.climb(rung, options), plain);
}

// Rows are equal up to rounding; so are what is sent, and what is held but for 4 bytes a block. In
// order, all steps are equal up to the order of their sums.
TEST(ExactLadder, SendsAndHoldsWhatOrderedSumsDo) {
  Climber climber;
  std::vector<Trainer> all = rungs();
  all.push_back(pipeline());
  FinishedRun step1;
  for (const Trainer& rung : all) {
    SCOPED_TRACE(rung.step);
    TrainOptions options = with_exact_sums(climber, 4, 0);
    options.data.num_microbatches = 4;
    options.num_steps = 2;
    options.model.layers = std::max(2, climber.size());
    const TrainReport exact = climber.climb(rung, options).report;
    options.gradient_sum = SumMode::kOrdered;
    const FinishedRun run = climber.climb(rung, options);
    const TrainReport& ordered = run.report;
    if (step1.name.empty()) step1 = run;
    if (rung.step != pipeline().step) expect_close(run, step1);  // which has other rows
    EXPECT_NEAR(exact.losses[1] / ordered.losses[1], 1, 1e-5);
    EXPECT_EQ(exact.traffic, ordered.traffic);
    std::map<std::string, std::int64_t> others = ordered.memory.other_bytes;
    std::int64_t& quanta = others["quanta"];
    for (const FlatUnit& unit : layout_of(options).units) quanta += 4 * num_norm_blocks(unit.numel);
    EXPECT_EQ(exact.memory.other_bytes, others);
    constexpr auto kOwn = MemoryCategory::kActivations;  // the others' peaks are those of theory
    EXPECT_LE(exact.memory.peak(kOwn), ordered.memory.peak(kOwn));
  }
}

// One run that every step takes over from another one, on another number of ranks, after each step of
// an epoch and at its end. Each trains to the end, which with exact sums is that of the loop that
// nobody interrupted. With sums in order it is that of the oracle that goes on from the same
// checkpoint, also after step 9, which computes something else.
void walk(Climber& climber, TrainOptions options) {
  const bool is_exact = options.gradient_sum == SumMode::kExact;
  options.num_steps = 12;
  options.model.layers = 3;
  options.output.save_every = 1;
  options.output.keep = 0;
  options.set<DilocoOptions>().sync_every = 4;
  const FinishedRun plain = is_exact ? plain_loop(climber, options) : FinishedRun();
  // All steps, in an order in which neighbors have little in common; and the pipeline in another cut.
  const std::vector<Trainer> steps = trainers();
  std::vector<Trainer> legs;
  for (std::size_t i = 0; i < steps.size(); ++i) legs.push_back(steps[7 * i % steps.size()]);
  legs.push_back(oracle());
  legs.push_back(pipeline());
  std::int64_t step = 0;
  for (std::size_t i = 0; i < legs.size(); ++i) {
    const Trainer& rung = legs[i];
    const int most = rung.role == RankRole::kAlone ? 1 : 2 + static_cast<int>((i + 1) % 3);
    const int num_stages = rung.role != RankRole::kStage ? 1 : most == 4 ? 2 : most;
    const std::string& name = rung.step;
    const bool is_diloco = rung.role == RankRole::kWorker;
    if (is_diloco && is_exact) continue;
    const int num_ranks = std::min(most, climber.size());
    SCOPED_TRACE(concat(name, " on ", num_ranks, " ranks, after step ", step));
    const int of_replica = num_ranks % num_stages == 0 ? num_stages : num_ranks;
    options.set<PipelineOptions>().num_stages = of_replica;
    const TrainOptions own = comparable(rung, options);
    const FinishedRun run = climber.climb_on(num_ranks, rung, own);
    if (!is_exact && !is_diloco)
      climber.expect_oracle(run, own,
                            rung.role == RankRole::kStage ? num_ranks / of_replica : num_ranks);
    if (climber.rank() == 0) {
      EXPECT_EQ(run.report.first_step, step);
    }
    if (climber.rank() == 0 && is_exact) {
      EXPECT_EQ(run.report.param_hash, plain.report.param_hash);
      EXPECT_EQ(run.report.losses,
                std::vector<double>(plain.report.losses.begin() + step, plain.report.losses.end()));
    }
    options.output.resume =
        concat(run.folder, "/checkpoints/step_0000", ++step < 10 ? "0" : "", step);
  }
}

class ExactLadder {};

TEST_ON_RANKS(ExactLadder, ACheckpointWalksOverStepsAndNumbersOfRanks) {
  Climber climber;
  walk(climber, with_exact_sums(climber, 1, 7));
}

// Untied: then a pipeline equals the oracle to the bit.
TEST_ON_RANKS(ExactLadder, ACheckpointOfOrderedSumsWalksAsTheOracleDoes) {
  Climber climber;
  Configuration untied = covering_set()[1];
  untied.tie_embeddings = false;
  untied.is_llama = true;
  walk(climber, climber.options(untied));
}

// Quanta are of no precision: gradients under a loss scale have them, too. In the same precision, also
// while the scale doubles, a run that is continued is the one that was not interrupted.
TEST_ON_RANKS(ExactLadder, ACheckpointGoesOnInAnotherPrecision) {
  Climber climber;
  TrainOptions exact = with_exact_sums(climber, 4, 7);
  exact.model.precision.params = NumberFormat::kFp16;
  exact.loss_scale = {.initial = 1 << 13, .window = 3};
  exact.num_steps = 7;
  exact.output.save_every = 2;
  exact.output.keep = 0;
  const FinishedRun whole = climber.climb(rung_of("step5_zero1"), exact);
  exact.output.resume = whole.folder + "/checkpoints/step_000002";
  for (const at::ScalarType type : {at::kHalf, at::kFloat, at::kBFloat16}) {
    SCOPED_TRACE(at::toString(type));
    exact.model.precision.params = format_of(type);
    const FinishedRun run = climber.climb(rung_of("step3_naive_dp"), exact);
    EXPECT_EQ(run.report.repeated_steps, 0);
    for (std::size_t i = 0; i < run.report.grad_norms.size(); ++i)
      EXPECT_NEAR(run.report.grad_norms[i] / whole.report.grad_norms.at(i + 2), 1, 0.03);
    if (type == at::kHalf && climber.rank() == 0) {
      EXPECT_EQ(run.report.param_hash, whole.report.param_hash);
    }
  }
}

// A checkpoint of sums in order goes on with exact ones, and the other way round.
TEST(ExactLadder, ACheckpointGoesOnWithTheOtherSums) {
  Climber climber;
  for (const bool is_exact_first : {false, true}) {
    SCOPED_TRACE(is_exact_first ? "exact first" : "ordered first");
    TrainOptions exact = with_exact_sums(climber, 1, 4 * climber.size()), ordered = exact;
    ordered.gradient_sum = SumMode::kOrdered;
    ordered.data.step_microbatches = 0;
    ordered.data.num_microbatches = 4;
    TrainOptions &first = is_exact_first ? exact : ordered,
                 &second = is_exact_first ? ordered : exact;
    first.num_steps = 2;
    second.output.resume = climber.climb(rung_of("step5_zero1"), first).folder;
    climber.expect_oracle(climber.climb(rung_of("step4_bucketed_ddp"), second), second,
                          is_exact_first ? climber.size() : 1);
  }
}

}  // namespace
}  // namespace ladder
