// On 1, 2, 3 and 4 ranks: what the judge does not show.
#include "step6_zero2/gradient_sharder.hpp"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "common/core/memory_ledger.hpp"
#include "common/model/build_layers.hpp"
#include "common/optim/flat_model.hpp"
#include "common/testing/rank_test.hpp"
#include "step0_single_gpu/objective.hpp"

namespace ladder {
namespace {

class GradientSharderTest : public RankTest {};

// There is no unit then, and no pass to wait for.
TEST_ON_RANKS(GradientSharderTest, HasNothingToDoForAModelThatIsFrozenAltogether) {
  const FlatModel model({{"ice", {{"rock", at::ones({40})}, {"stone", at::ones({3})}}}},
                        shard_multiple(size_));
  GradientSharder sharder(plan_shards(model.layout(), size_, rank_), model.leaves(), comm_);
  const Traffic before = comm_.traffic();
  sharder.arm(2);
  EXPECT_NO_THROW(sharder.wait());
  EXPECT_EQ(comm_.traffic(), before);
}

// Live activations when a gradient arrives at the output of the first block.
std::int64_t activations_in_backward(const ModelOptions& options, Communicator& comm) {
  const Model model = build_layers(options, 1);
  const FlatModel flat(model.units(), shard_multiple(comm.size()));
  GradientSharder sharder(plan_shards(flat.layout(), comm.size(), comm.rank()), flat.leaves(),
                          comm);
  const at::Tensor tokens = at::zeros({1, options.context}, at::kLong);
  const std::int64_t before = read_memory().live(MemoryCategory::kActivations);
  std::int64_t during = 0;
  sharder.arm(1);
  at::Tensor x = model.layers[1].forward(model.layers[0].forward(tokens));
  x.register_hook([&](const at::Tensor& /*gradient*/) {
    during = read_memory().live(MemoryCategory::kActivations) - before;
  });
  const at::Tensor logits = model.layers[3].forward(model.layers[2].forward(x));
  cross_entropy_sum(logits, tokens).backward();
  sharder.wait();
  return during;
}

// It is complete only when the embedding's backward has added its half: until then the head's is
// not the sharder's yet, but autograd's.
TEST_ON_PROCESSES(GradientSharderTest, ATiedEmbeddingsGradientWaitsInsideAutograd) {
  install_memory_ledger();
  ModelOptions options = {
      .vocab_size = 3000, .context = 4, .layers = 2, .heads = 2, .channels = 20};
  const std::int64_t tied = activations_in_backward(options, test_world().comm());
  options.tie_embeddings = false;
  const std::int64_t untied = activations_in_backward(options, test_world().comm());
  EXPECT_EQ(tied - untied, 4 * options.vocab_size * options.channels);
}

}  // namespace
}  // namespace ladder
