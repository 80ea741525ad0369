// On 1, 2, 3 and 4 ranks.
#include "step6_zero2/gradient_sharder.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

#include "common/comm/contract/rank_values.hpp"
#include "common/comm/self_communicator.hpp"
#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/model/build_layers.hpp"
#include "common/optim/flat_model.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/lazy_communicator.hpp"
#include "common/testing/rank_test.hpp"
#include "step0_single_gpu/objective.hpp"
#include "step6_zero2/exercise/uninitialized_memory.hpp"
#include "step6_zero2/sharder_cost.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

at::Tensor leaf(at::IntArrayRef shape, bool is_trainable = true) {
  return at::ones(shape).set_requires_grad(is_trainable);
}

// Tensors of one element, of less than a slice and of more; a frozen tensor, a frozen unit, and a
// unit of a single element, which is padding on all ranks but the first.
std::vector<Unit> hostile_units() {
  return {{"embedding", {{"wte", leaf({33, 7})}}},
          {"one", {{"scale", leaf({1})}}},
          {"ice", {{"rock", leaf({40}, false)}, {"stone", leaf({3}, false)}}},
          {"block",
           {{"mask", leaf({20}, false)},
            {"weight", leaf({16, 16})},
            {"bias", leaf({1})},
            {"large", leaf({70, 70})}}},
          {"head", {{"gain", leaf({5})}, {"frozen", leaf({9}, false)}, {"shift", leaf({5})}}}};
}

// A model whose gradient on each rank is whatever values_of() says.
struct Model {
  explicit Model(const Communicator& comm, const std::vector<Unit>& units = hostile_units())
      : flat(units, shard_multiple(comm.size())),
        plan(plan_shards(flat.layout(), comm.size(), comm.rank())) {}

  const FlatTensor& place(std::size_t i) const { return flat.layout().tensors[i]; }
  at::Tensor tensor(std::size_t i) const { return flat.leaves()[i].tensor; }

  // What rank r's microbatch gives to tensor i. Tensor 0 is used twice, as a tied embedding is.
  at::Tensor gradient(int rank, std::int64_t microbatch, std::size_t i) const {
    const auto seed = static_cast<std::uint64_t>(100 * microbatch) + i;
    at::Tensor values = values_of(rank, place(i).numel, at::kFloat, seed);
    return i == 0 ? values + values_of(rank, place(i).numel, at::kFloat, seed + 50) : values;
  }

  // Those named in `left_out` take no part.
  void backward(int rank, std::int64_t microbatch, const std::string& left_out = "") {
    at::Tensor loss = at::zeros({});
    for (std::size_t i = 0; i < flat.leaves().size(); ++i) {
      if (!place(i).is_trainable || place(i).name == left_out) continue;
      const auto seed = static_cast<std::uint64_t>(100 * microbatch) + i;
      const auto use = [&](std::uint64_t of) {
        loss = loss + (tensor(i).flatten() * values_of(rank, place(i).numel, at::kFloat, of)).sum();
      };
      use(seed);
      if (i == 0) use(seed + 50);
    }
    loss.backward();
  }

  // This rank's slices of the sum: in each microbatch over ranks in order, then over microbatches.
  at::Tensor fold(std::int64_t num_microbatches) const {
    const at::Tensor full = at::zeros({flat.layout().numel});
    for (std::size_t i = 0; i < flat.layout().tensors.size(); ++i) {
      if (!place(i).is_trainable) continue;
      const at::Tensor sum = full.narrow(0, place(i).start, place(i).numel);
      for (std::int64_t j = 0; j < num_microbatches; ++j) {
        at::Tensor of_ranks = gradient(0, j, i);
        for (int r = 1; r < plan.world_size; ++r) of_ranks += gradient(r, j, i);
        sum.add_(of_ranks);
      }
    }
    return at::cat(plan.slices_of_full(full));
  }

  FlatModel flat;
  ShardPlan plan;
};

class GradientSharderTest : public RankTest {};

// Padding, frozen tensors and the frozen unit are part of the shard, and zero in it.
TEST_ON_RANKS(GradientSharderTest, ShardIsTheFoldRanksFirstAndCostsWhatTheorySays) {
  const step6::UninitializedIsNan guard;
  Communicator& comm = test_world().comm();
  Model model(comm);
  GradientSharder sharder(model.plan, model.flat.leaves(), comm);
  for (const std::int64_t m : {1, 3, 1}) {
    const Traffic before = comm.traffic();
    sharder.zero_grad();
    sharder.arm(m);
    for (std::int64_t j = 0; j < m; ++j) model.backward(comm.rank(), j);
    sharder.wait();
    EXPECT_TRUE(bits_equal(sharder.grad_shard(), model.fold(m))) << m << " microbatches";
    for (const auto& [name, tensor] : model.flat.leaves())
      EXPECT_FALSE(tensor.grad().defined()) << name;
    Traffic sent = comm.traffic();
    Traffic theory = sharder_traffic(model.flat.layout(), comm.size(), comm.rank());
    EXPECT_EQ(theory[CommOp::kReduceScatter].calls, 4);  // the frozen unit sends nothing
    EXPECT_EQ(sent -= before, theory *= m);
  }
}

// Four units of three tensors. Backward goes through the tensors one by one, from the last to the
// first.
std::vector<Unit> chain() {
  std::vector<Unit> units;
  for (const char* unit : {"a", "b", "c", "d"}) {
    units.push_back({unit, {}});
    for (const char* tensor : {"0", "1", "2"}) {
      units.back().tensors.push_back(
          {concat(unit, tensor), at::ones({16}).set_requires_grad(true)});
    }
  }
  return units;
}

// MPI makes progress only while it is called. Every hook calls it, so a unit has been reduced by
// the time the next one is sent, and no rank waits for it.
TEST_ON_RANKS(GradientSharderTest, MovesTheTransportOnInEveryHook) {
  SelfCommunicator alone;
  LazyCommunicator lazy(alone, /*num_tests=*/3);
  const FlatModel flat(chain(), shard_multiple(1));
  GradientSharder sharder(plan_shards(flat.layout(), 1, 0), flat.leaves(), lazy);
  sharder.arm(1);
  at::Tensor product = at::ones({16});
  for (const NamedTensor& leaf : flat.leaves()) product = product * leaf.tensor;
  product.sum().backward();
  EXPECT_EQ(lazy.num_started(), 4);
  EXPECT_EQ(lazy.num_done_by_tests(), 3);
  sharder.wait();
}

// Without zero_grad() in between, as a loop might want it.
TEST_ON_RANKS(GradientSharderTest, AddsToWhatIsThere) {
  Communicator& comm = test_world().comm();
  Model model(comm);
  GradientSharder sharder(model.plan, model.flat.leaves(), comm);
  for (std::int64_t j = 0; j < 2; ++j) {
    sharder.arm(1);
    model.backward(comm.rank(), j);
    sharder.wait();
  }
  EXPECT_TRUE(bits_equal(sharder.grad_shard(), model.fold(2)));
}

TEST_ON_PROCESSES(GradientSharderTest, HoldsItsShardAndTwoUnitsAndNeverMore) {
  install_memory_ledger();
  Communicator& comm = test_world().comm();
  std::vector<Unit> equal;
  for (int u = 0; u < 24; ++u)
    equal.push_back({concat("unit", u), {{concat("unit", u, ".w"), leaf({3000})}}});
  const std::vector<Unit> single = {{"only", {{"w", leaf({5000})}, {"b", leaf({1})}}}};
  for (const std::vector<Unit>& units : {hostile_units(), equal, single}) {
    Model model(comm, units);
    const std::int64_t before = read_memory().live(MemoryCategory::kGradients);
    GradientSharder sharder(model.plan, model.flat.leaves(), comm);
    const std::int64_t shard_bytes = 4 * model.flat.layout().numel / comm.size();
    for (const std::int64_t m : {1, 3}) {
      reset_memory_peaks();
      sharder.arm(m);
      for (std::int64_t j = 0; j < m; ++j) model.backward(comm.rank(), j);
      sharder.wait();
      const MemoryReading memory = read_memory();
      EXPECT_EQ(memory.peak(MemoryCategory::kGradients) - before,
                shard_bytes + gradient_bytes_in_flight(model.flat.layout(), m))
          << units[0].name << ", " << m << " microbatches";
      EXPECT_EQ(memory.live(MemoryCategory::kGradients) - before, shard_bytes);
    }
    if (units.size() == equal.size()) {  // two of 24 units, not 24
      EXPECT_EQ(gradient_bytes_in_flight(model.flat.layout(), 3),
                4 * model.flat.layout().numel / 12);
    }
  }
}

TEST_ON_RANKS(GradientSharderTest, NamesRankAndParameterThatHasHadTooFewGradients) {
  SelfCommunicator alone;
  const auto says = [](const char* parameter, const char* count) {
    return ThrowsMessage<CheckError>(
        AllOf(HasSubstr("rank 0"), HasSubstr(parameter), HasSubstr(count)));
  };
  {
    Model model(alone);
    GradientSharder sharder(model.plan, model.flat.leaves(), alone);
    sharder.arm(2);
    model.backward(0, 0);
    EXPECT_THAT([&] { sharder.wait(); }, says("'shift'", "1 of 2 gradients"));
  }
  {
    Model model(alone);
    GradientSharder sharder(model.plan, model.flat.leaves(), alone);
    sharder.arm(1);
    model.backward(0, 0, "bias");
    EXPECT_THAT([&] { sharder.wait(); }, says("'bias'", "0 of 1 gradients"));
  }
  {  // the pass that lacks one has passes behind it
    Model model(alone);
    GradientSharder sharder(model.plan, model.flat.leaves(), alone);
    sharder.arm(2);
    model.backward(0, 0, "bias");
    EXPECT_THAT([&] { model.backward(0, 1, "bias"); }, says("'bias'", "0 of 2 gradients"));
  }
}

// There is no unit then, and no pass to wait for.
TEST_ON_RANKS(GradientSharderTest, HasNothingToDoForAModelThatIsFrozenAltogether) {
  Communicator& comm = test_world().comm();
  Model model(comm, {{"ice", {{"rock", leaf({40}, false)}, {"stone", leaf({3}, false)}}}});
  GradientSharder sharder(model.plan, model.flat.leaves(), comm);
  const Traffic before = comm.traffic();
  sharder.arm(2);
  EXPECT_NO_THROW(sharder.wait());
  EXPECT_EQ(comm.traffic(), before);
}

TEST_ON_RANKS(GradientSharderTest, RefusesWhatWasNotArmed) {
  SelfCommunicator alone;
  Model model(alone);
  GradientSharder sharder(model.plan, model.flat.leaves(), alone);
  EXPECT_THAT([&] { sharder.wait(); },
              ThrowsMessage<CheckError>(HasSubstr("wait() without arm()")));
  EXPECT_THAT([&] { sharder.arm(0); }, ThrowsMessage<CheckError>(HasSubstr("arm(0)")));
  sharder.arm(1);
  EXPECT_THAT([&] { sharder.arm(1); }, ThrowsMessage<CheckError>(HasSubstr("without wait()")));
  model.backward(0, 0);
  EXPECT_THAT([&] { model.backward(0, 1); },
              ThrowsMessage<CheckError>(
                  AllOf(HasSubstr("rank 0"), HasSubstr("'shift'"),
                        HasSubstr("more than the 1 gradient(s) that arm() announced"))));
}

TEST_ON_RANKS(GradientSharderTest, LeavesUnarmedBackwardsToAutogradAndTakesItsHooksAlong) {
  Communicator& comm = test_world().comm();
  Model model(comm);
  const Traffic before = comm.traffic();
  const auto expect_own_gradients = [&] {
    for (std::size_t i = 0; i < model.flat.leaves().size(); ++i) {
      const at::Tensor grad = model.tensor(i).grad();
      EXPECT_EQ(grad.defined(), model.place(i).is_trainable);
      if (grad.defined()) {
        EXPECT_TRUE(bits_equal(grad.flatten(), model.gradient(comm.rank(), 0, i)));
        model.tensor(i).mutable_grad().reset();
      }
    }
  };
  {
    const GradientSharder sharder(model.plan, model.flat.leaves(), comm);
    model.backward(comm.rank(), 0);
    expect_own_gradients();
    EXPECT_EQ(sharder.grad_shard().count_nonzero().item<std::int64_t>(), 0);
  }
  for (const auto& [name, tensor] : model.flat.leaves()) {
    if (!tensor.requires_grad()) continue;
    EXPECT_EQ(torch::autograd::impl::post_acc_grad_hooks(tensor), nullptr) << name;
  }
  model.backward(comm.rank(), 0);  // calls no hook of an object that is gone
  expect_own_gradients();
  EXPECT_EQ(comm.traffic(), before);
}

// Live activations when a gradient arrives at the output of the first block.
std::int64_t activations_in_backward(const ModelOptions& options, Communicator& comm) {
  const ladder::Model model = build_layers(options, 1);
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
