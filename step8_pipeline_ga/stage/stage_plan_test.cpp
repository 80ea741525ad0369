#include "step8_pipeline_ga/stage/stage_plan.hpp"

#include <gtest/gtest.h>

#include <set>

#include "common/optim/norm.hpp"
#include "common/train/build_model.hpp"
#include "common/train/start.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"

namespace ladder {
namespace {

TrainOptions options(bool is_tied, int chunks_per_stage = 1) {
  TrainOptions options;
  options.model = {
      .context = 8, .layers = 6, .heads = 2, .channels = 20, .tie_embeddings = is_tied};
  options.set<PipelineOptions>().chunks_per_stage = chunks_per_stage;
  if (chunks_per_stage > 1) options.set<PipelineOptions>().schedule = Schedule::kInterleaved;
  finalize(options);
  return options;
}

// Whatever the number of stages, they store each tensor once, and their norm blocks are those of
// the whole model, each once.
TEST(StagePlan, StagesMakeUpTheWholeModel) {
  for (const bool is_tied : {true, false}) {
    for (const auto& [num_stages, chunks] :
         {std::pair{1, 1}, {2, 1}, {3, 1}, {6, 1}, {2, 3}, {3, 2}}) {
      const TrainOptions o = options(is_tied, chunks);
      std::set<std::int64_t> blocks;
      std::int64_t numel = 0;
      std::multiset<std::string> owned;
      for (int stage = 0; stage < num_stages; ++stage) {
        const StagePlan plan = plan_stage(o, num_stages, stage);
        numel += plan.layout.numel;
        for (std::size_t i = 0; i < plan.owners.size(); ++i) {
          if (plan.owners[i] == stage) owned.insert(plan.whole.tensors[i].name);
        }
        for (const StagePlan::NormPiece& piece : plan.norm_pieces) {
          EXPECT_LE(piece.start + piece.numel, plan.layout.numel);
          for (std::int64_t b = 0; b * kNormBlock < piece.numel; ++b)
            EXPECT_TRUE(blocks.insert(piece.first_block + b).second);
        }
        EXPECT_EQ(plan.tied.has_value(),
                  is_tied && num_stages > 1 && (stage == 0 || stage == num_stages - 1));
      }
      const StagePlan any = plan_stage(o, num_stages, 0);
      EXPECT_EQ(static_cast<std::int64_t>(blocks.size()), any.num_norm_blocks);
      EXPECT_EQ(*blocks.rbegin(), any.num_norm_blocks - 1);
      EXPECT_EQ(owned.size(), any.whole.tensors.size());
      const std::int64_t copy = is_tied && num_stages > 1 ? o.model.vocab_size * 20 : 0;
      EXPECT_GE(numel, any.whole.numel + copy);
      EXPECT_LT(numel, any.whole.numel + copy + 16 * 2);
    }
  }
}

TEST(StagePlan, TheCopyOfATiedEmbeddingIsInNoNorm) {
  const StagePlan last = plan_stage(options(true), 3, 2);
  ASSERT_TRUE(last.tied.has_value());
  EXPECT_EQ(last.tied->name, "wte.weight");
  for (const StagePlan::NormPiece& piece : last.norm_pieces)
    EXPECT_LE(piece.start + piece.numel, last.tied->start);
  EXPECT_EQ(last.owners.front(), 0);  // the first stage stores it
}

}  // namespace
}  // namespace ladder
