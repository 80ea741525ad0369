#include "step8_pipeline_ga/stage/stage_sums.hpp"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "common/comm/contract/rank_values.hpp"
#include "common/optim/norm.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/rank_test.hpp"
#include "common/train/build_model.hpp"
#include "common/train/start.hpp"

namespace ladder {
namespace {

// A stage of a model whose head is tied or not, and a buffer of the whole model.
struct OneStage {
  OneStage(bool is_tied, const Communicator& stages) {
    options.model = {
        .context = 8, .layers = 5, .heads = 2, .channels = 36, .tie_embeddings = is_tied};
    finalize(options);
    plan = plan_stage(options, stages.size(), stages.rank());
    std::uint64_t seed = 1;
    whole = at::zeros({plan.whole.numel});  // the padding stays zero
    for (const NamedTensor& view : named_views(plan.whole, whole)) {
      const at::Tensor values = values_of(0, view.tensor.numel(), at::kFloat, seed++);
      at::Tensor(view.tensor).copy_(values.view(view.tensor.sizes()));
    }
  }

  // This stage's part of the buffer; with a copy of a tied embedding.
  void copy_own_part(const at::Tensor& own) const {
    for (const NamedTensor& mine : named_views(plan.layout, own)) {
      for (const NamedTensor& view : named_views(plan.whole, whole)) {
        if (view.name == mine.name) at::Tensor(mine.tensor).copy_(view.tensor);
      }
    }
  }

  TrainOptions options;
  StagePlan plan;
  at::Tensor whole;
};

// The ranks of this program are the stages of one model.
class StageSums : public RankTest {};

TEST_ON_RANKS(StageSums, TheNormIsThatOfOneProcessToTheBit) {
  for (const bool is_tied : {false, true}) {
    const OneStage stage(is_tied, comm_);
    const at::Tensor own = at::zeros({stage.plan.layout.numel});
    stage.copy_own_part(own);
    EXPECT_EQ(pipeline_norm(stage.plan, own, comm_), flat_norm(stage.plan.whole, stage.whole));
  }
}

// Both ends get the sum, and nothing else changes; with one stage there is nothing to send.
TEST_ON_RANKS(StageSums, BothEndsOfATiedModelGetTheSum) {
  for (const bool is_tied : {false, true}) {
    const OneStage stage(is_tied, comm_);
    const StagePlan& plan = stage.plan;
    FlatModel flat(plan.layout);
    const Model model = build_model(stage.options, plan.cut.layers_of(plan.stage), flat);
    FlatGradients grads(flat);
    grads.flat().fill_(rank_ + 1);
    const auto tied = tied_stages(plan, comm_);
    EXPECT_EQ(tied != nullptr, plan.tied.has_value());
    const Traffic before = comm_.traffic();
    all_reduce_tied_gradient(plan, grads, tied.get());
    Traffic sent = comm_.traffic();
    sent -= before;
    at::Tensor wanted = at::zeros({plan.layout.numel}).fill_(rank_ + 1);
    if (plan.tied) wanted.narrow(0, plan.tied->start, plan.tied->numel).fill_(1 + size_);
    EXPECT_TRUE(bits_equal(grads.flat(), wanted));
    EXPECT_EQ(sent.bytes_sent(), plan.tied ? 4 * stage.options.model.vocab_size * 36 : 0);
  }
}

}  // namespace
}  // namespace ladder
