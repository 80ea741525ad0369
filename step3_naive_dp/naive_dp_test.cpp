#include "step3_naive_dp/naive_dp.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/comm/contract/rank_values.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/model/gpt.hpp"
#include "common/optim/optimizer.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/rank_test.hpp"
#include "common/testing/temp_folder.hpp"
#include "step0_single_gpu/simulated_ranks.hpp"
#include "step2_sharded_data/data_shard.hpp"

namespace ladder {
namespace {

GptOptions gpt_options(bool tie_embeddings = true) {
  return {.vocab_size = 258,
          .context = 16,
          .layers = 1,
          .heads = 2,
          .channels = 20,
          .tie_embeddings = tie_embeddings};
}

struct TinyModel {
  TinyModel(const GptOptions& options, std::uint64_t seed) : model(build_gpt(options, seed)) {}

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

  void expect_the_same_on_all_ranks(const at::Tensor& flat) {
    const at::Tensor all = at::zeros({size_ * flat.numel()});
    comm_.all_gather(flat, all)->wait();
    for (int r = 0; r < size_; ++r) {
      EXPECT_TRUE(bits_equal(all.narrow(0, r * flat.numel(), flat.numel()), flat)) << "rank " << r;
    }
  }

  static std::uint64_t seed_of(int rank) { return static_cast<std::uint64_t>(rank) + 1; }
};

TEST_ON_RANKS(NaiveDp, BroadcastsTheParametersOfAnyRoot) {
  for (int root = 0; root < size_; ++root) {
    TinyModel own(gpt_options(), seed_of(rank_)), wanted(gpt_options(), seed_of(root));
    own.grads.flat().fill_(7);
    const std::int64_t numel = own.flat.layout().numel;
    EXPECT_EQ(traffic_of([&] { broadcast_parameters(own.flat, comm_, root); }),
              broadcast_traffic(numel, 4, size_, rank_, root));
    EXPECT_TRUE(bits_equal(own.flat.params(), wanted.flat.params())) << "from rank " << root;
    EXPECT_TRUE(bits_equal(own.grads.flat(), at::full({numel}, 7.0F)));
  }
}

TEST_ON_RANKS(NaiveDp, BroadcastsFrozenParametersToo) {
  const at::Tensor frozen = at::full({3}, static_cast<float>(rank_));
  FlatModel flat({{"unit", {{"frozen", frozen}}}});
  broadcast_parameters(flat, comm_, size_ - 1);
  EXPECT_TRUE(bits_equal(frozen, at::full({3}, static_cast<float>(size_ - 1))));
}

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

// A tied weight is one tensor, and is sent once.
TEST_ON_RANKS(NaiveDp, SendsEachTensorOnceAndNoPadding) {
  std::int64_t num_calls[2];
  for (const bool is_tied : {false, true}) {
    TinyModel tiny(gpt_options(is_tied), 1);
    Traffic wanted;
    for (const FlatTensor& tensor : tiny.flat.layout().tensors) {
      wanted += all_reduce_traffic(tensor.numel, 4, size_, rank_);
    }
    const Traffic sent = traffic_of([&] { all_reduce_gradients(tiny.grads, comm_); });
    EXPECT_EQ(sent, wanted);
    num_calls[is_tied ? 1 : 0] = sent[CommOp::kAllReduce].calls;
  }
  EXPECT_EQ(num_calls[0], num_calls[1] + 1);
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

TEST_ON_PROCESSES(NaiveDp, ScratchIsThatOfOneTensorAtATime) {
  install_memory_ledger();
  TinyModel tiny(gpt_options(), 1);
  std::int64_t largest = 0;
  for (const FlatTensor& tensor : tiny.flat.layout().tensors) {
    largest = std::max(largest, tensor.numel);
  }
  EXPECT_EQ(largest, 258 * 20);
  const std::int64_t before = read_memory().total_live_bytes;
  reset_memory_peaks();
  all_reduce_gradients(tiny.grads, comm_);
  const MemoryReading after = read_memory();
  EXPECT_EQ(after.total_live_bytes, before);
  const std::int64_t scratch = after.peak_bytes - before;
  EXPECT_LE(scratch, 4 * largest);
  // The other ranks' pieces of this rank's chunk.
  EXPECT_EQ(scratch, size_ == 1 ? 0 : 4 * (size_ - 1) * (largest / size_));
}

// Replicas that start apart and read different data: equal after every step, to the bit, and their
// gradient is the oracle's.
TEST_ON_RANKS(NaiveDp, ReplicasStayEqual) {
  const TempFolder folder;
  std::string lines;
  for (std::size_t i = 0; i < 70; ++i)
    lines += concat("{\"answer\": \"", i, std::string(i * 7 % 17, 'x'), "\"}\n");
  const DataOptions data{.source = folder.write("documents.jsonl", lines),
                         .rows = Rows::kDocuments,
                         .microbatch_size = 2,
                         .num_microbatches = 2,
                         .context = 16};
  TinyModel replica(gpt_options(), seed_of(rank_)), oracle(gpt_options(), seed_of(0));
  Optimizer optimizer(replica.flat, replica.grads, {});
  Optimizer oracles_optimizer(oracle.flat, oracle.grads, {});
  SimulatedRanks ranks(size_, Fold::kMicrobatchesFirst, oracle.grads);
  BatchStream batches(data, data_shard(rank_, size_, data.tail));
  BatchStream oracles_batches = global_batches(data, size_);
  broadcast_parameters(replica.flat, comm_);
  for (int step = 0; step < 4; ++step) {
    const Microbatches batch = batches.next(), global = oracles_batches.next();
    const double num_targets = all_reduce_sum(static_cast<double>(batch.num_targets()), comm_);
    EXPECT_EQ(num_targets, static_cast<double>(global.num_targets()));
    accumulate_gradients(replica.loss_sum, batch, num_targets);
    ranks.accumulate_gradients(oracle.loss_sum, global, num_targets);
    all_reduce_gradients(replica.grads, comm_);
    EXPECT_TRUE(bits_equal(replica.grads.flat(), oracle.grads.flat())) << "step " << step;
    optimizer.step(1e-3);
    oracles_optimizer.step(1e-3);
    expect_the_same_on_all_ranks(replica.flat.params());
    EXPECT_TRUE(bits_equal(replica.flat.params(), oracle.flat.params())) << "step " << step;
    replica.grads.zero();
    oracle.grads.zero();
  }
}

}  // namespace
}  // namespace ladder
