// Layers in parts: every step equals step 0 with as many parts, to the bit, and step 0 with one part
// up to rounding; checkpoints hold whole tensors, and go on with any number of parts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/check.hpp"
#include "common/testing/rank_test.hpp"
#include "common/train/start.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"
#include "tests/parity/climber.hpp"

namespace ladder {
namespace {

using ::testing::IsEmpty;

class PartsLadder {};

TrainOptions in_parts(TrainOptions options, std::int64_t parts) {
  options.model.heads = 4;
  options.model.kv_heads = options.model.family == ModelFamily::kLlama ? 4 : 0;
  options.model.channels = 40;  // an MLP of 160, or of 128
  options.data.vocab_size = 261;
  options.model.product_parts = parts;
  finalize(options);
  return options;
}

TEST_ON_RANKS(PartsLadder, EveryStepEqualsTheOracle) {
  Climber climber;
  for (const std::size_t i : {0, 4, 8}) {  // tied and llama in 16 bits, untied, blocks recomputed
    for (const int parts : {2, 4}) {
      TrainOptions options = in_parts(climber.options(covering_set()[i]), parts);
      options.num_steps = 4;
      options.output.eval_every = 2;
      FinishedRun wanted;
      if (climber.rank() == 0) wanted = climber.ask_oracle(options, climber.size());
      for (const Trainer& rung : rungs()) {
        if (parts == 4 && rung.step != "step4_bucketed_ddp" && rung.step != "step7_zero3") continue;
        SCOPED_TRACE(concat(rung.step, " in ", parts, " parts, ", covering_set()[i].name()));
        const TrainOptions own = comparable(rung, options);
        const FinishedRun run = climber.climb(rung, own);
        if (climber.rank() != 0 || own.gradient_sum != options.gradient_sum) continue;
        EXPECT_THAT(differences(run, wanted), IsEmpty());
      }
    }
  }
}

TEST_ON_RANKS(PartsLadder, APipelineEqualsTheOracle) {
  Climber climber;
  if (climber.size() > 2) return;       // of 2 blocks
  for (const std::size_t i : {4, 6}) {  // untied; tied, which is equal up to the order of its sum
    SCOPED_TRACE(covering_set()[i].name());
    TrainOptions options = in_parts(climber.options(covering_set()[i]), 2);
    options.num_steps = 4;
    if (i == 6) options.gradient_sum = SumMode::kExact;
    options.set<PipelineOptions>().num_stages = climber.size();
    const FinishedRun run = climber.climb(pipeline(), options);
    climber.expect_oracle(run, options, 1);
  }
}

// Begun with one number of parts, continued with another.
TEST_ON_RANKS(PartsLadder, ACheckpointGoesOnWithAnyNumberOfParts) {
  Climber climber;
  TrainOptions options = in_parts(climber.options(covering_set()[4]), 2);
  options.num_steps = 4;
  options.output.save_every = 2;
  options.output.keep = 0;
  const Trainer& rung = rung_of("step5_zero1");
  const FinishedRun whole = climber.climb(rung, options);
  for (const int parts : {2, 4, 1}) {
    SCOPED_TRACE(concat(parts, " parts"));
    TrainOptions rest = in_parts(options, parts);
    rest.output.resume = whole.folder + "/checkpoints/step_000002";
    const FinishedRun run = climber.climb(rung, rest);
    if (climber.rank() != 0) continue;
    const double last = run.report.losses.back(), wanted = whole.report.losses.back();
    if (parts == 2) {
      EXPECT_EQ(run.report.param_hash, whole.report.param_hash);
    }
    EXPECT_NEAR(last / wanted, 1, 2e-6);
    EXPECT_NE(last, 0);
  }
}

}  // namespace
}  // namespace ladder
