#include "step3_naive_dp/naive_dp.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "common/comm/contract/rank_values.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/core/check.hpp"
#include "common/model/build_layers.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/rank_test.hpp"
#include "step0_single_gpu/simulated_ranks.hpp"
#include "step2_sharded_data/data_shard.hpp"

namespace ladder {
namespace {

ModelOptions gpt_options(bool tie_embeddings = true) {
  return {.vocab_size = 258,
          .context = 16,
          .layers = 1,
          .heads = 2,
          .channels = 20,
          .tie_embeddings = tie_embeddings};
}

struct TinyModel {
  TinyModel(const ModelOptions& options, std::uint64_t seed) : model(build_layers(options, seed)) {}

  Model model;
  FlatModel flat{model.units()};
  FlatGradients grads{flat};
  LossSum loss_sum = loss_of(model, kNextToken);
};

class NaiveDp : public RankTest {
 protected:
  // What `act` sends.
  template <class Act>
  Traffic traffic_of(Act act) {
    const Traffic before = comm_.traffic();
    act();
    Traffic sent = comm_.traffic();
    sent -= before;
    return sent;
  }
};

// The model's own gradients, in every tensor, and nothing written between them.
TEST_ON_RANKS(NaiveDp, GradientsAreTheFoldInRankOrder) {
  TinyModel tiny(gpt_options(), 1);
  for (const std::uint64_t seed : {1, 2}) {
    for (const auto& [name, grad] : named_views(tiny.flat.layout(), tiny.grads.flat())) {
      grad.copy_(values_of(rank_, grad.numel(), at::kFloat, seed).view(grad.sizes()));
    }
    const at::Tensor params = tiny.flat.params().clone();
    all_reduce_gradients(tiny.grads, comm_);
    at::Tensor wanted = at::zeros_like(tiny.grads.flat());
    for (const auto& [name, grad] : named_views(tiny.flat.layout(), wanted)) {
      grad.copy_(fold_of_all(size_, grad.numel(), at::kFloat, seed).view(grad.sizes()));
    }
    EXPECT_TRUE(bits_equal(tiny.grads.flat(), wanted));
    EXPECT_TRUE(bits_equal(tiny.flat.params(), params));
  }
}

// Frozen before the flat model was made, without a gradient, or after, with one that stays.
TEST_ON_RANKS(NaiveDp, LeavesFrozenParametersOut) {
  const at::Tensor before = at::ones({5}), after = at::ones({6}).set_requires_grad(true);
  const at::Tensor one_element = at::ones({}).set_requires_grad(true);
  FlatModel flat({{"unit", {{"before", before}, {"one", one_element}, {"after", after}}}});
  FlatGradients grads(flat);
  after.set_requires_grad(false);
  grads.flat().fill_(static_cast<float>(rank_ + 1));
  EXPECT_EQ(traffic_of([&] { all_reduce_gradients(grads, comm_); }),
            all_reduce_traffic(1, 4, size_, rank_));
  EXPECT_FALSE(before.grad().defined());
  EXPECT_TRUE(bits_equal(named_views(flat.layout(), grads.flat())[0].tensor,
                         at::full({5}, float(rank_ + 1))));
  EXPECT_TRUE(bits_equal(after.grad(), at::full({6}, float(rank_ + 1))));
  EXPECT_EQ(one_element.grad().item<float>(), size_ * (size_ + 1) / 2.0);
}

// Rank 0's backward never reaches `b`: it contributes zeros, and the others' gradients count.
TEST_ON_RANKS(NaiveDp, UnusedParameterAddsZerosAndNobodyWaits) {
  const at::Tensor a = at::ones({3}).set_requires_grad(true);
  const at::Tensor b = at::ones({4}).set_requires_grad(true);
  FlatModel flat({{"unit", {{"a", a}, {"b", b}}}});
  FlatGradients grads(flat);
  for (int step = 0; step < 2; ++step) {
    grads.zero();
    (rank_ == 0 ? a.sum() : a.sum() + (b * (rank_ + 1)).sum()).backward();
    all_reduce_gradients(grads, comm_);
    EXPECT_TRUE(bits_equal(a.grad(), at::full({3}, float(size_))));
    EXPECT_TRUE(bits_equal(b.grad(), at::full({4}, float(size_ * (size_ + 1) / 2 - 1))));
  }
}

}  // namespace
}  // namespace ladder
