// On 1, 2, 3 and 4 ranks.
#include "step7_zero3/sharded_model.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/rank_test.hpp"
#include "step5_zero1/sharded_optimizer.hpp"
#include "step6_zero2/gradient_sharder.hpp"
#include "step7_zero3/prefetch_options.hpp"
#include "step7_zero3/train.hpp"
#include "step7_zero3/whole_model.hpp"

namespace ladder {
namespace {

using step7::WholeModel;

constexpr std::uint64_t kSeed = 5;

ModelOptions shape(std::int64_t layers, std::int64_t channels, bool is_tied) {
  return {.vocab_size = 150,
          .context = 6,
          .layers = layers,
          .heads = 2,
          .channels = channels,
          .tie_embeddings = is_tied};
}

class ShardedModelTest : public RankTest {
 protected:
  ShardedModelTest() { install_memory_ledger(); }
  // Whether this rank holds so many bytes of parameters in addition to this model's shard. Threads
  // cannot tell.
  static ::testing::AssertionResult holds(const ShardedModel& model, std::int64_t before,
                                          std::int64_t wanted) {
    const std::int64_t whole_bytes = parameter_bytes() - before - 4 * model.plan().numel;
    if (!ranks_are_processes() || whole_bytes == wanted) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << whole_bytes << " bytes instead of " << wanted;
  }
  static std::int64_t parameter_bytes() { return read_memory().live(MemoryCategory::kParameters); }
  static std::int64_t unit_bytes(const ShardedModel& model, std::size_t unit) {
    return 4 * model.plan().layout.units[unit].numel;
  }

  // Two microbatches, forward and backward: the numbers, to the bit, and the cost card.
  void expect_step(const TrainOptions& options) {
    const WholeModel whole(options.model, kSeed);
    const std::int64_t before = parameter_bytes();
    ShardedModel model(layer_builder(options.model, kSeed),
                       options.get<PrefetchOptions>().num_units, comm_);
    GradientSharder sharder(model.plan(), model.leaves(), comm_);
    EXPECT_EQ(4 * model.plan().numel,
              step7::state_bytes(options, comm_.size(), comm_.rank()).parameters);
    EXPECT_TRUE(holds(model, before, 0));
    const Traffic traffic_before = comm_.traffic();
    Traffic theory;
    sharder.arm(2);
    for (const std::int64_t j : {0, 1}) {
      const at::Tensor tokens = whole.tokens(comm_.rank(), j);
      reset_memory_peaks();
      const at::Tensor logits = model.forward(tokens);
      EXPECT_TRUE(bits_equal(logits, whole.model().forward(tokens)));
      whole.loss(logits, tokens).backward();
      EXPECT_TRUE(holds(model, before, 0));
      if (ranks_are_processes()) {
        EXPECT_EQ(read_memory().peak(MemoryCategory::kParameters) - before,
                  step7::peak_bytes(options, comm_.size(), comm_.rank()).parameters);
      }
      theory += step7::microbatch_traffic(options, comm_.size(), comm_.rank());
    }
    sharder.wait();
    EXPECT_TRUE(bits_equal(sharder.grad_shard(), whole.grad_shard(model.plan(), 2)));
    Traffic sent = comm_.traffic();
    EXPECT_EQ(sent -= traffic_before, theory);
  }

  // One microbatch, forward and backward; whole.gradient() knows the result.
  at::Tensor gradient(ShardedModel& model, const WholeModel& whole) {
    const at::Tensor tokens = whole.tokens(comm_.rank(), 0);
    whole.loss(model.forward(tokens), tokens).backward();
    const at::Tensor flat = at::zeros({model.plan().layout.numel});
    for (std::size_t t = 0; t < model.leaves().size(); ++t) {
      at::Tensor& grad = at::Tensor(model.leaves()[t].tensor).mutable_grad();
      const FlatTensor& place = model.plan().layout.tensors[t];
      if (grad.defined()) flat.narrow(0, place.start, place.numel).copy_(grad.flatten());
      grad.reset();
    }
    return flat;
  }
  at::Tensor wanted_gradient(const ShardedModel& model, const WholeModel& whole) const {
    return whole.gradient(model.plan().layout, comm_.rank(), 0);
  }
};

// One block and several, odd widths, and a prefetch that reaches beyond the model.
TEST_ON_RANKS(ShardedModelTest, EqualsTheWholeModelAndCostsWhatTheCardSays) {
  for (const auto& [layers, channels] : {std::pair{1, 20}, {2, 32}, {4, 20}}) {
    for (const bool is_tied : {false, true}) {
      for (const int prefetch : {0, 1, 2, 7}) {
        SCOPED_TRACE(concat(layers, " layers, ", channels, " channels, ",
                            is_tied ? "tied" : "untied", ", prefetch ", prefetch));
        TrainOptions options;
        options.model = shape(layers, channels, is_tied);
        options.set<PrefetchOptions>().num_units = prefetch;
        expect_step(options);
      }
    }
  }
}

TEST_ON_PROCESSES(ShardedModelTest, ConstructionNeverHoldsMoreThanTheShardAndTwoUnits) {
  for (const bool is_tied : {false, true}) {
    reset_memory_peaks();
    const std::int64_t before = read_memory().total_live_bytes;
    const ShardedModel model(layer_builder(shape(6, 20, is_tied), kSeed), 1, comm_);
    std::int64_t largest = 0;
    for (const FlatUnit& unit : model.plan().layout.units) largest = std::max(largest, unit.numel);
    EXPECT_LE(read_memory().peak_bytes - before, 4 * (model.plan().numel + 2 * largest));
    EXPECT_EQ(read_memory().total_live_bytes - before, 4 * model.plan().numel);
  }
}

TEST_ON_RANKS(ShardedModelTest, ForwardWithoutGradientsLeavesNothingBehind) {
  const at::NoGradGuard no_grad;
  for (const bool is_tied : {false, true}) {
    const WholeModel whole(shape(3, 20, is_tied), kSeed);
    const std::int64_t before = parameter_bytes();
    ShardedModel model(layer_builder(shape(3, 20, is_tied), kSeed), 2, comm_);
    const at::Tensor tokens = whole.tokens(comm_.rank(), 0);
    EXPECT_TRUE(bits_equal(model.forward(tokens), whole.model().forward(tokens)));
    EXPECT_TRUE(holds(model, before, 0));
  }
}

// A graph that is dropped: the next forward frees what was kept for its backward, and sees the
// parameters as an optimizer has updated them meanwhile.
TEST_ON_RANKS(ShardedModelTest, ABackwardThatNeverComesLeavesNoTrace) {
  for (const bool is_tied : {false, true}) {
    const WholeModel whole(shape(3, 20, is_tied), kSeed);
    const std::int64_t before = parameter_bytes();
    ShardedModel model(layer_builder(shape(3, 20, is_tied), kSeed), 1, comm_);
    for (const std::int64_t j : {0, 1}) model.forward(whole.tokens(comm_.rank(), j));
    EXPECT_TRUE(holds(model, before, unit_bytes(model, 4) + (is_tied ? unit_bytes(model, 0) : 0)));
    model.param_shard().mul_(1.5);
    for (const NamedTensor& leaf : whole.leaves()) leaf.tensor.detach().mul_(1.5);
    EXPECT_TRUE(bits_equal(gradient(model, whole), wanted_gradient(model, whole)));
    EXPECT_TRUE(holds(model, before, 0));
  }
}

// An evaluation between a forward and its backward drops what was kept; backward gathers it again.
TEST_ON_RANKS(ShardedModelTest, AnotherForwardMayComeBeforeTheBackward) {
  for (const bool is_tied : {false, true}) {
    const WholeModel whole(shape(3, 20, is_tied), kSeed);
    const std::int64_t before = parameter_bytes();
    ShardedModel model(layer_builder(shape(3, 20, is_tied), kSeed), 1, comm_);
    GradientSharder sharder(model.plan(), model.leaves(), comm_);
    const at::Tensor tokens = whole.tokens(comm_.rank(), 0);
    sharder.arm(1);
    const at::Tensor logits = model.forward(tokens);
    {
      const at::NoGradGuard no_grad;
      model.forward(whole.tokens(comm_.rank(), 1));
    }
    EXPECT_TRUE(holds(model, before, 0));
    whole.loss(logits, tokens).backward();
    sharder.wait();
    EXPECT_TRUE(bits_equal(sharder.grad_shard(), whole.grad_shard(model.plan(), 1)));
    EXPECT_TRUE(holds(model, before, 0));
  }
}

// Some tensors of a block, all of one, of two, of the head: backward goes through them
// nevertheless. Without a gradient at the embedding's output, nothing signals the end of backward:
// the next forward frees what the hook there would have dropped.
TEST_ON_RANKS(ShardedModelTest, FrozenUnitsNeitherCrashNorLeak) {
  const std::vector<std::set<std::string>> frozen_prefixes = {
      {"h.1.ln_1.weight", "h.1.mlp.c_fc.bias", "wpe"},
      {"h.0."},
      {"h.0.", "h.1."},
      {"h.2."},
      {"ln_f"},
      {"ln_f", "lm_head"},
      {"wte"},
      {"wte", "wpe"},
      {"wte", "wpe", "h.0.", "h.1."},
      {"wte", "wpe", "h.", "lm_head"}};
  const auto freeze = [](const std::vector<NamedTensor>& leaves, const std::set<std::string>& any) {
    for (const auto& [name, tensor] : leaves) {
      for (const std::string& prefix : any) {
        if (name.starts_with(prefix)) tensor.set_requires_grad(false);
      }
    }
  };
  for (const bool is_tied : {false, true}) {
    for (const std::set<std::string>& prefixes : frozen_prefixes) {
      SCOPED_TRACE(
          concat(is_tied ? "tied" : "untied", ", frozen ", ::testing::PrintToString(prefixes)));
      const WholeModel whole(shape(3, 20, is_tied), kSeed);
      freeze(whole.leaves(), prefixes);
      const std::int64_t before = parameter_bytes();
      ShardedModel model(layer_builder(shape(3, 20, is_tied), kSeed), 1, comm_);
      freeze(model.leaves(), prefixes);
      for (int step = 0; step < 2; ++step)
        EXPECT_TRUE(bits_equal(gradient(model, whole), wanted_gradient(model, whole)));
      const bool has_embedding_frozen = prefixes.contains("wte") && prefixes.contains("wpe");
      if (!has_embedding_frozen) {
        EXPECT_TRUE(holds(model, before, 0));
      }
      const at::NoGradGuard no_grad;
      model.forward(whole.tokens(comm_.rank(), 1));
      EXPECT_TRUE(holds(model, before, 0));
    }
  }
}

// In backward the tied embedding goes with the head: after that the blocks come one at a time.
TEST_ON_PROCESSES(ShardedModelTest, ATiedEmbeddingGoesWithTheHeadsBackward) {
  const WholeModel whole(shape(3, 20, true), kSeed);
  const std::int64_t before = parameter_bytes();
  ShardedModel model(layer_builder(shape(3, 20, true), kSeed), /*prefetch=*/0, comm_);
  const at::Tensor tokens = whole.tokens(comm_.rank(), 0);
  const at::Tensor loss = whole.loss(model.forward(tokens), tokens);
  reset_memory_peaks();
  loss.backward();
  EXPECT_EQ(read_memory().peak(MemoryCategory::kParameters) - before - 4 * model.plan().numel,
            std::max(unit_bytes(model, 0) + unit_bytes(model, 4), unit_bytes(model, 1)));
}

// A frozen tensor has no place in the plan of what is reduced and updated.
TEST_ON_RANKS(ShardedModelTest, TrainsAroundFrozenParameters) {
  const auto is_frozen = [](const std::string& name) {
    return name.starts_with("h.0.") || name == "wpe.weight" || name == "h.1.ln_2.bias";
  };
  const WholeModel whole(shape(2, 20, true), kSeed);
  const ModelBuilder frozen = [&](const OnUnit& on_unit, at::Device device) {
    const OnUnit freeze_first = [&](const Unit& unit) {
      for (const auto& [name, tensor] : unit.tensors) tensor.set_requires_grad(!is_frozen(name));
      if (on_unit) on_unit(unit);
    };
    return build_layers(shape(2, 20, true), kSeed, freeze_first, device);
  };
  ShardedModel model(frozen, 1, comm_);
  const at::Tensor start = model.param_shard().clone();
  GradientSharder sharder(model.plan(), model.leaves(), comm_);
  ShardedOptimizer optimizer(model.plan(), model.plan().slices_of_shard(model.param_shard()),
                             model.plan().slices_of_shard(sharder.grad_shard()), {});
  const at::Tensor tokens = whole.tokens(comm_.rank(), 0);
  sharder.arm(1);
  whole.loss(model.forward(tokens), tokens).backward();
  sharder.wait();
  optimizer.step(0.1);
  for (const FlatTensor& tensor : model.plan().layout.tensors) {
    for (const UnitSlice& slice : model.plan().slices) {
      const std::int64_t begin = std::max(tensor.start, slice.start);
      const std::int64_t end = std::min(tensor.start + tensor.numel, slice.start + slice.numel);
      if (begin >= end) continue;  // no part of it is this rank's
      const auto own = [&](const at::Tensor& shard) {
        return shard.narrow(0, slice.shard_start + begin - slice.start, end - begin);
      };
      EXPECT_EQ(own(model.param_shard()).equal(own(start)), is_frozen(tensor.name)) << tensor.name;
    }
  }
}

TEST_ON_RANKS(ShardedModelTest, RefusesANegativePrefetch) {
  EXPECT_THROW(ShardedModel(layer_builder(shape(1, 20, true), kSeed), -1, comm_), CheckError);
}

}  // namespace
}  // namespace ladder
