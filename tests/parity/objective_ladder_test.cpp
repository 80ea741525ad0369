// The objectives of step 8's chapter on the parity ladder: a cut into stages changes no bit of any
// of them, a cut into microbatches and replicas nothing but rounding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"
#include "step8_pipeline_ga/schedule/pipeline_schedule.hpp"
#include "tests/parity/objective_climber.hpp"

namespace ladder {
namespace {

using ::testing::IsEmpty;

class ObjectiveLadder : public ObjectiveClimber {};

// The numbers that an objective reports besides its loss.
std::size_t num_metrics(ObjectiveKind kind) {
  return kind == ObjectiveKind::kDpo ? 8 : kind == ObjectiveKind::kSelfDistillation ? 2 : 0;
}

TEST_F(ObjectiveLadder, StagesChangeNoBit) {
  const int size = climber_.size();
  for (const ObjectiveCase& which : all_objectives()) {
    const std::vector<int> cuts = size == 4 ? std::vector{4, 2} : std::vector{size};
    for (const int num_stages : cuts) {
      SCOPED_TRACE(concat(which.name, ", ", num_stages, " stages on ", size, " ranks"));
      TrainOptions whole = options(which, 1);
      whole.set<PipelineOptions>().schedule = Schedule::kGpipe;
      const FinishedRun run = climb(options(which, num_stages));
      const FinishedRun wanted =
          climber_.climb_on(size / num_stages, pipeline_with_objectives(), whole);
      if (climber_.rank() != 0) continue;
      EXPECT_EQ(run.report.losses.size(), 6u);
      EXPECT_THAT(differences(run, wanted), IsEmpty());
      EXPECT_EQ(run.report.metrics, wanted.report.metrics);
      ASSERT_FALSE(run.report.val_losses.empty());
      const Metrics& validation = run.report.val_losses.back().metrics;
      EXPECT_EQ(validation, wanted.report.val_losses.back().metrics);
      const std::size_t own = num_metrics(which.objective.kind);
      EXPECT_EQ(validation.size(), own);
      EXPECT_EQ(run.report.metrics.back().size(), own + (which.docs_per_step > 0 ? 2 : 0));
    }
  }
}

// For the next token, the loop with an objective is step 8's, whose checkpoints it takes up.
TEST_F(ObjectiveLadder, LearnsTheNextTokenAsStepEightDoes) {
  TrainOptions all = options(lm_by_documents(), climber_.size() == 4 ? 2 : climber_.size());
  all.lr.schedule = LrSchedule::kConstant;
  TrainOptions first = all, rest = all;
  first.num_steps = 4;
  const FinishedRun wanted = climber_.climb(pipeline(), all);
  const FinishedRun run = climb(all);
  rest.output.resume = climber_.climb(pipeline(), first).folder;
  climber_.wait_for_all();
  EXPECT_EQ(climb(rest).report.param_hash, wanted.report.param_hash);
  if (climber_.rank() != 0) return;
  EXPECT_THAT(differences(run, wanted), IsEmpty());
  EXPECT_EQ(run.report.metrics, wanted.report.metrics);
}

// These objectives keep a position among documents, a reference, a cache and a teacher between
// steps.
TEST_F(ObjectiveLadder, AResumedRunContinuesAsIfItHadNotStopped) {
  for (const ObjectiveCase& which : {lm_by_documents(), dpo_by_pairs(), dpo_from_cache(),
                                     self_distillation(SinkhornScope::kBatch)}) {
    SCOPED_TRACE(which.name);
    TrainOptions all = options(which, climber_.size() == 4 ? 2 : climber_.size());
    all.lr.schedule = LrSchedule::kConstant;  // the decay would know the number of steps
    TrainOptions first = all, rest = all;
    first.num_steps = 4;
    const FinishedRun wanted = climb(all);
    rest.output.init_from = {};
    rest.output.resume = climb(first).folder;
    climber_.wait_for_all();
    const FinishedRun run = climb(rest);
    EXPECT_EQ(run.report.first_step, 4);
    for (std::size_t i = 0; i < run.report.losses.size(); ++i) {
      EXPECT_EQ(run.report.losses[i], wanted.report.losses[i + 4]) << i;
      EXPECT_EQ(run.report.metrics[i], wanted.report.metrics[i + 4]) << i;
    }
    EXPECT_EQ(run.report.param_hash, wanted.report.param_hash);
  }
}

// A step ends when all replicas together have 6 documents, 2 in each microbatch: 3 microbatches of
// one replica.
TEST_F(ObjectiveLadder, AFixedNumberOfDocumentsIsAFixedNumberOfMicrobatches) {
  const int num_replicas = climber_.size() == 4 ? 2 : 1;
  const int num_stages = climber_.size() / num_replicas;
  TrainOptions counted =
      options({.name = "counted", .docs_per_step = 6 * num_replicas}, num_stages);
  TrainOptions fixed = options({.name = "fixed"}, num_stages, 3);
  counted.num_steps = fixed.num_steps = 3;  // before the end of the epoch
  const FinishedRun run = climb(counted);
  const FinishedRun wanted = climb(fixed);
  if (climber_.rank() != 0) return;
  EXPECT_THAT(differences(run, wanted), IsEmpty());
  // They run in one flush, of which the first stage holds as many microbatches at a time.
  EXPECT_EQ(run.report.memory.peak(MemoryCategory::kActivations),
            wanted.report.memory.peak(MemoryCategory::kActivations));
}

// A way to compute the gradient of 12 samples.
struct Cut {
  std::int64_t num_replicas = 1;
  std::int64_t num_stages = 1;
  std::int64_t microbatch_size = 12;  // the last one may be smaller
  Schedule schedule = Schedule::k1f1b;

  std::int64_t num_microbatches() const {
    return (12 / num_replicas + microbatch_size - 1) / microbatch_size;
  }
  std::string name() const {
    return concat(num_replicas, " replicas of ", num_stages, " stages, ", num_microbatches(),
                  " microbatches of up to ", microbatch_size, ", ", to_string(schedule));
  }
};

// 1 x 12, 4 x 3, 12 x 1 and unequal pieces, on any number of stages and replicas. One stage has no
// bubble to fill.
std::vector<Cut> cuts_on(std::int64_t num_ranks) {
  std::vector<Cut> cuts;
  for (const std::int64_t num_replicas : std::set<std::int64_t>{1, 2, num_ranks}) {
    if (num_ranks % num_replicas != 0) continue;
    const std::int64_t num_stages = num_ranks / num_replicas, rows = 12 / num_replicas;
    for (const std::int64_t size :
         std::set<std::int64_t>{rows, std::min<std::int64_t>(rows, 5), 3, 1}) {
      const Cut cut = {num_replicas, num_stages, size};
      if (cut.num_microbatches() < num_stages) continue;
      cuts.push_back(cut);
      if (num_stages > 1) cuts.push_back({num_replicas, num_stages, size, Schedule::kZeroBubble});
    }
  }
  return cuts;
}

TEST_F(ObjectiveLadder, TheGradientIsTheSameHoweverTheBatchIsCut) {
  ObjectiveCase by_tokens = dpo();
  by_tokens.name = "dpo over tokens";
  by_tokens.objective.dpo.mean_over = DpoMeanOver::kTokens;
  for (const ObjectiveCase& which :
       {ObjectiveCase{.name = "lm"}, dpo(), by_tokens, self_distillation(SinkhornScope::kBatch)}) {
    TrainOptions common = options(which, 1);
    common.num_steps = 1;
    common.clip_norm = 0;
    common.optimizer.kind = OptimizerKind::kSgd;
    common.lr = {.schedule = LrSchedule::kConstant, .lr = 0.1};
    common.data.order = SampleOrder::kSequential;
    common.data.source = samples_for(which, 12);
    const auto with = [&](const Cut& cut) {
      TrainOptions options = common;
      options.data.microbatch_size = cut.microbatch_size;
      options.data.num_microbatches = cut.num_microbatches();
      options.set<PipelineOptions>().num_stages = static_cast<int>(cut.num_stages);
      options.set<PipelineOptions>().schedule = cut.schedule;
      return options;
    };
    const FinishedRun wanted = climber_.climb_on(1, pipeline_with_objectives(), with(Cut()));
    for (const Cut& cut : cuts_on(climber_.size())) {
      SCOPED_TRACE(concat(which.name, ": ", cut.name()));
      const FinishedRun run = climb(with(cut));
      if (climber_.rank() != 0) continue;
      EXPECT_EQ(run.report.denominators, wanted.report.denominators);
      expect_close(run, wanted, {.param_norm = 1e-7});
    }
  }
}

}  // namespace
}  // namespace ladder
