#include "step8_pipeline_ga/tensor_parallel/tensor_parts.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "common/comm/traffic_theory.hpp"
#include "common/core/check.hpp"
#include "common/optim/flat_model.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/rank_test.hpp"
#include "common/train/build_model.hpp"
#include "step0_single_gpu/cross_entropy_in_parts.hpp"
#include "step0_single_gpu/objective.hpp"
#include "step8_pipeline_ga/tensor_parallel/sequence_parallel.hpp"
#include "step8_pipeline_ga/tensor_parallel/train.hpp"

namespace ladder {
namespace {

class TensorParts : public RankTest {
 protected:
  // One part for each rank, or more.
  TrainOptions options_of(int parts) const {
    TrainOptions options = trainer_.options;
    options.model = {.vocab_size = 61,  // divides into one part only
                     .context = 8,
                     .layers = 2,
                     .heads = 24,
                     .channels = 96,
                     .product_parts = parts};
    options.set<TensorOptions>().num_ranks = size_;
    return options;
  }
  const Trainer trainer_ = tensor_parallel::trainer();
  const Mesh mesh_ = Mesh::split(comm_, 1, size_);
};

TEST_ON_RANKS(TensorParts, AreDealtInTheOrderOfTheRanks) {
  for (const int each : {1, 2, 4}) {
    const Parts parts = parts_on(mesh_, options_of(each * size_));
    EXPECT_EQ(parts.total, each * size_);
    EXPECT_EQ(parts.first, each * rank_);
    EXPECT_EQ(parts.own, each);
    EXPECT_EQ(static_cast<bool>(parts.start_sum), size_ > 1);
  }
}

// A rank tells the others three numbers of each row, and nothing in backward.
TEST_ON_RANKS(TensorParts, TheCrossEntropyHasTheBitsOfOneRank) {
  for (const int each : {1, 2, 4}) {
    const int total = each * size_;
    if (total == 1) continue;
    const VocabParts all = {all_parts(total), 61};
    const VocabParts own = {parts_on(mesh_, options_of(total)), 61};
    const at::Generator same = at::detail::createCPUGenerator(7);
    const at::Tensor logits = (at::randn({3, 7, 61}, same) * 5).set_requires_grad(true);
    const at::Tensor targets = at::randint(61, {3, 7}, same, at::kLong);
    targets[1][2] = kIgnoredTarget;
    const at::Tensor wanted = cross_entropy_sum(logits, targets, all);
    wanted.backward();
    const std::int64_t begin = own.begin(own.first), end = own.begin(own.first + own.own);
    const at::Tensor mine =
        logits.detach().slice(2, begin, end).contiguous().set_requires_grad(true);
    at::Tensor loss;
    const Traffic forward = sent_in(comm_, [&] { loss = cross_entropy_sum(mine, targets, own); });
    EXPECT_EQ(forward, size_ == 1
                           ? Traffic()
                           : all_reduce_traffic(3 * 21 * size_, 4, size_, rank_, comm_.machines()));
    const Traffic backward = sent_in(comm_, [&] { loss.backward(); });
    EXPECT_EQ(backward, Traffic());
    EXPECT_TRUE(loss.equal(wanted));
    EXPECT_TRUE(mine.grad().equal(logits.grad().slice(2, begin, end))) << each;
  }
}

// What all parts use stays equal on all ranks, without a message about it, unless rows are cut.
TEST_ON_RANKS(TensorParts, WhatAllPartsUseHasTheSameGradients) {
  for (const auto& [family, cuts_rows] :
       {std::pair(ModelFamily::kGpt2, false), std::pair(ModelFamily::kLlama, false),
        std::pair(ModelFamily::kGpt2, true), std::pair(ModelFamily::kLlama, true)}) {
    TrainOptions options = options_of(2 * size_);
    options.model.family = family;
    options.model.context = 24;
    options.set<TensorOptions>().is_sequence_parallel = cuts_rows && size_ > 1;
    const std::vector<std::int64_t> layers = {0, 1, 2, 3};
    const Parts parts = with_rows_cut(parts_on(mesh_, options), mesh_, options);
    FlatModel flat(layout_of(options, layers, parts));
    const Model model = build_model(options, layers, parts, flat);
    FlatGradients grads(flat);
    const at::Tensor tokens = at::full({2, 24}, 5, at::kLong);
    loss_of(model, kNextToken)({tokens, tokens, 48}).backward();
    int num_shared = 0;
    for (const FlatTensor& tensor : flat.layout().tensors) {
      if (tensor.part) continue;
      ++num_shared;
      const at::Tensor own = grads.flat().narrow(0, tensor.start, tensor.numel);
      const at::Tensor of_rank_0 = own.clone();
      comm_.broadcast(of_rank_0, 0)->wait();
      EXPECT_TRUE(own.equal(of_rank_0)) << tensor.name;
      EXPECT_FALSE(own.eq(0).all().item<bool>()) << tensor.name;
    }
    EXPECT_EQ(num_shared, family == ModelFamily::kGpt2 ? 1 + 2 * 6 + 2 : 2 * 2 + 1);
  }
}

TEST_ON_RANKS(TensorParts, WhatAllComputeAlikeCountsOnce) {
  EXPECT_EQ(all_reduce_sum(counted_once(2.5, mesh_), comm_), 2.5);
}

}  // namespace
}  // namespace ladder
