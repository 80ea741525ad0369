#include "step8_pipeline_ga/stage_sums.hpp"

#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "common/optim/norm.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/mpi_world.hpp"
#include "common/train/build_model.hpp"

namespace ladder {
namespace {

// The ranks of this program are the stages of one model.
class StageSums : public ::testing::TestWithParam<bool> {
 protected:
  StageSums() {
    options_.model = {
        .context = 8, .layers = 5, .heads = 2, .channels = 36, .tie_embeddings = GetParam()};
    finalize(options_);
    plan_ = plan_stage(options_, stages().size(), stages().rank());
    at::manual_seed(1);
    whole_ = at::zeros({plan_.whole.numel});
    for (const NamedTensor& view : named_views(plan_.whole, whole_))
      at::Tensor(view.tensor).copy_(at::randn(view.tensor.sizes()));
  }
  static Communicator& stages() { return mpi_world().comm(); }

  // This stage's part of a buffer of the whole model; with a copy of a tied embedding.
  void copy_own_part(const at::Tensor& own) const {
    for (const NamedTensor& mine : named_views(plan_.layout, own)) {
      for (const NamedTensor& view : named_views(plan_.whole, whole_)) {
        if (view.name == mine.name) at::Tensor(mine.tensor).copy_(view.tensor);
      }
    }
  }

  TrainOptions options_;
  StagePlan plan_;
  at::Tensor whole_;
};

TEST_P(StageSums, TheNormIsThatOfOneProcessToTheBit) {
  const at::Tensor own = at::zeros({plan_.layout.numel});
  copy_own_part(own);
  EXPECT_EQ(pipeline_norm(plan_, own, stages()), flat_norm(plan_.whole, whole_));
}

TEST_P(StageSums, ClippingScalesEveryStageByTheSameFactor) {
  FlatModel flat(plan_.layout);
  const Model model = build_model(options_, plan_.cut.layers_of(plan_.stage), flat);
  FlatGradients grads(flat);
  copy_own_part(grads.flat());
  const at::Tensor before = grads.flat().clone();
  const double norm = flat_norm(plan_.whole, whole_);
  EXPECT_EQ(clip_gradients(plan_, grads, 0, stages()), norm);
  EXPECT_TRUE(bits_equal(grads.flat(), before));
  EXPECT_EQ(clip_gradients(plan_, grads, norm / 4, stages()), norm);
  EXPECT_TRUE(bits_equal(grads.flat(), before * clip_factor(norm, norm / 4)));
}

// Both ends get the sum, and nothing else changes; with one stage there is nothing to send.
TEST_P(StageSums, BothEndsOfATiedModelGetTheSum) {
  FlatModel flat(plan_.layout);
  const Model model = build_model(options_, plan_.cut.layers_of(plan_.stage), flat);
  FlatGradients grads(flat);
  grads.flat().fill_(stages().rank() + 1);
  const auto tied = tied_stages(plan_, stages());
  EXPECT_EQ(tied != nullptr, plan_.tied.has_value());
  const Traffic before = stages().traffic();
  all_reduce_tied_gradient(plan_, grads, tied.get());
  Traffic sent = stages().traffic();
  sent -= before;
  at::Tensor wanted = at::zeros({plan_.layout.numel}).fill_(stages().rank() + 1);
  if (plan_.tied) wanted.narrow(0, plan_.tied->start, plan_.tied->numel).fill_(1 + stages().size());
  EXPECT_TRUE(bits_equal(grads.flat(), wanted));
  EXPECT_EQ(sent.bytes_sent(), plan_.tied ? 4 * options_.model.vocab_size * 36 : 0);
}

INSTANTIATE_TEST_SUITE_P(TiedOrNot, StageSums, ::testing::Bool());

}  // namespace
}  // namespace ladder
