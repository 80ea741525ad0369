// Tensor parallelism's rung of the parity ladder: on any mesh of stages, replicas and tensor ranks,
// the bits are those of step 0 with as many parts, which computes all of them alone; and each rank
// holds and sends what theory says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "common/core/check.hpp"
#include "common/testing/rank_test.hpp"
#include "common/train/start.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"
#include "step8_pipeline_ga/tensor_parallel/tensor_options.hpp"
#include "tests/parity/climber.hpp"

namespace ladder {
namespace {

using ::testing::IsEmpty;

struct Cut {
  int parts = 1, tensor_ranks = 1, stages = 1;
  bool cuts_rows = false;
  std::string name() const {
    return concat(parts, " parts, ", tensor_ranks, " tensor ranks, ", stages, " stages",
                  cuts_rows ? ", sequence parallel" : "");
  }
};

// All that so many ranks can be: each axis alone and together with the others, and one part and more
// for each rank.
std::vector<Cut> cuts_on(int num_ranks) {
  switch (num_ranks) {
    case 1:
      return {{1}, {4}};
    case 2:
      return {{2, 2}, {2, 2, 1, true}, {4, 2, 1, true}, {2, 1, 2}, {4, 2}};
    case 3:
      return {{3, 3}, {6, 3, 1, true}, {3, 1}};
    case 4:
      return {{4, 4, 1, true}, {2, 2, 1, true}, {4, 2}, {2, 2, 2, true}, {4, 4}, {4, 2, 2}};
    case 5:
      return {{4}};
    case 6:
      return {{3, 3}, {6, 3, 2, true}};
    default:
      return {{4, 2, 2, true}, {4, 4, 2}, {4, 4}, {2, 2}};
  }
}

TrainOptions cut(TrainOptions options, const Cut& cut) {
  const bool is_in_threes = cut.parts % 3 == 0;
  options.model.heads = is_in_threes ? 6 : 4;
  options.model.kv_heads = options.model.family != ModelFamily::kGpt2 ? options.model.heads : 0;
  options.model.channels = is_in_threes ? 48 : 40;
  options.model.product_parts = cut.parts;
  options.model.layers = 2;
  options.data.vocab_size = 261;  // divides into 3 parts only
  options.set<TensorOptions>() = {cut.tensor_ranks, cut.cuts_rows};
  options.set<PipelineOptions>().num_stages = cut.stages;
  options.given.insert("product-parts");
  finalize(options);
  return options;
}

class TensorLadder {};

// With these configurations in turn, each cut has two: tied and untied, GPT-2 and Llama, fp32 and 16
// bits, recomputed and not, clipped and not. Two stages of a tied model are equal with exact sums.
TEST_ON_RANKS(TensorLadder, EveryMeshEqualsTheOracle) {
  Climber climber;
  const std::vector<Configuration> all = covering_set();
  std::size_t next = 0;
  for (const Cut& of_ranks : cuts_on(climber.size())) {
    for (int twice = 0; twice < 2; ++twice) {
      const Configuration& configuration = all[next++ % all.size()];
      SCOPED_TRACE(concat(of_ranks.name(), ", ", configuration.name()));
      TrainOptions options = climber.options(configuration);
      options.data.num_microbatches = std::max<std::int64_t>(options.data.num_microbatches, 2);
      if (of_ranks.stages > 1) options.model.tie_embeddings = false;
      options = cut(options, of_ranks);
      options.num_steps = 6;
      options.output.eval_every = 3;
      if (twice == 0) options.output.sample = "line ";
      const FinishedRun run = climber.climb(tensor_trainer(), options);
      const int num_replicas = climber.size() / (of_ranks.tensor_ranks * of_ranks.stages);
      EXPECT_EQ(run.report.num_tensor_ranks, of_ranks.tensor_ranks);
      EXPECT_EQ(run.report.num_replicas, num_replicas);
      const FinishedRun wanted = climber.expect_oracle(run, options, num_replicas);
      if (climber.rank() != 0) continue;
      EXPECT_EQ(run.report.sample, wanted.report.sample);
      EXPECT_EQ(run.report.val_losses.size(), 2u);
    }
  }
}

// One hash for every number of data ranks, tensor ranks and stages; tied ones, too.
// Biases of heads, and norms that the heads of all ranks share; with queries that are wider than
// the residual stream. OLMo 2 trains in a single part.
TEST_ON_RANKS(TensorLadder, LlamasRelativesEqualTheOracle) {
  Climber climber;
  std::size_t next = 0;
  for (Cut of_ranks : cuts_on(climber.size())) {
    for (const ModelFamily family :
         {ModelFamily::kQwen2, ModelFamily::kQwen3, ModelFamily::kSmolLm3, ModelFamily::kOlmo2}) {
      const bool is_olmo2 = family == ModelFamily::kOlmo2;
      if (climber.size() > 1 && (of_ranks.tensor_ranks == 1) != is_olmo2) continue;
      if (is_olmo2) of_ranks.parts = 1;
      TrainOptions options = climber.options(covering_set()[4]);
      options.model.family = family;
      options.model.no_rope_interval = family == ModelFamily::kSmolLm3 ? 2 : 0;
      options.model.head_channels = 16;
      options.model.recompute = next++ % 3 == 0 ? Recompute::kBlocks : Recompute::kNone;
      options.data.num_microbatches = 2;
      options = cut(options, of_ranks);
      options.num_steps = 3;
      SCOPED_TRACE(
          concat(of_ranks.name(), ", ", named_models()[static_cast<std::size_t>(family)].name));
      const FinishedRun run = climber.climb(tensor_trainer(), options);
      climber.expect_oracle(run, options,
                            climber.size() / (of_ranks.tensor_ranks * of_ranks.stages));
    }
  }
}

TEST_ON_RANKS(TensorLadder, ExactSumsHaveOneHashOnEveryMesh) {
  Climber climber;
  for (const std::size_t i : {1, 7}) {
    std::set<std::string> hashes;
    for (Cut of_ranks : cuts_on(climber.size())) {
      if (of_ranks.parts % 3 != 0) of_ranks.parts = 4;
      TrainOptions options = climber.options(covering_set()[i]);
      options.gradient_sum = SumMode::kExact;
      options.data.step_microbatches = 8;
      options = cut(options, of_ranks);
      options.num_steps = 3;
      SCOPED_TRACE(concat(of_ranks.name(), ", ", covering_set()[i].name()));
      const FinishedRun run = climber.climb(tensor_trainer(), options);
      climber.expect_oracle(run, options, 1);
      if (of_ranks.parts == 4) hashes.insert(run.report.param_hash);
    }
    EXPECT_LE(hashes.size(), 1u);
  }
}

// Saved on one mesh, continued on another, and by a step that knows nothing of meshes. Sums are
// exact, so the number of replicas may change as well.
TEST_ON_RANKS(TensorLadder, ACheckpointGoesOnOnAnotherMesh) {
  Climber climber;
  const std::vector<Cut> cuts = cuts_on(climber.size());
  TrainOptions options = climber.options(covering_set()[4]);
  options.gradient_sum = SumMode::kExact;
  options.data.step_microbatches = 8;
  options = cut(options, cuts[0]);
  options.num_steps = 4;
  options.output.save_every = 2;
  options.output.keep = 0;
  const FinishedRun whole = climber.climb(tensor_trainer(), options);
  const std::string half = whole.folder + "/checkpoints/step_000002";
  for (const Cut& of_ranks : cuts) {
    SCOPED_TRACE(of_ranks.name());
    TrainOptions rest = cut(options, of_ranks);
    rest.output.resume = half;
    const FinishedRun run = climber.climb(tensor_trainer(), rest);
    if (climber.rank() != 0) continue;
    EXPECT_NEAR(run.report.losses.back() / whole.report.losses.back(), 1, 2e-6);
    if (of_ranks.parts == cuts[0].parts) {
      EXPECT_EQ(run.report.param_hash, whole.report.param_hash);
    }
  }
  options.output.resume = half;
  const FinishedRun elsewhere = climber.climb(rungs().back(), options);
  if (climber.rank() != 0) return;
  EXPECT_EQ(elsewhere.report.param_hash, whole.report.param_hash);
}

// Of the whole model, up to rounding.
TEST_ON_RANKS(TensorLadder, PartsAreTheModelUpToRounding) {
  Climber climber;
  for (const Cut& of_ranks : cuts_on(climber.size())) {
    if (of_ranks.tensor_ranks < climber.size()) continue;
    TrainOptions options = cut(climber.options(covering_set()[4]), of_ranks);
    options.num_steps = 6;
    const FinishedRun run = climber.climb(tensor_trainer(), options);
    options.model.product_parts = 1;
    if (climber.rank() == 0) expect_close(run, climber.ask_oracle(options, 1));
  }
}

TEST_ON_RANKS(TensorLadder, RefusesWhatDoesNotDivide) {
  Climber climber;
  const auto refused = [&](const Cut& impossible) -> std::string {
    try {
      cut(climber.options(covering_set()[4]), impossible);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refused({4, 3}), ::testing::HasSubstr("--product-parts 4"));
  EXPECT_THAT(refused({6, 2}), ::testing::HasSubstr("no power of two"));
  EXPECT_THAT(refused({8, 8}), ::testing::HasSubstr("--product-parts 8"));
  if (climber.size() % 4 == 0) return;
  const TrainOptions options = cut(climber.options(covering_set()[4]), {4, 4});
  EXPECT_THROW(tensor_trainer().mesh(options, climber.size()), UsageError);
}

}  // namespace
}  // namespace ladder
