// On 1, 2, 3 and 4 ranks: what the judge does not show.
#include "step7_zero3/sharded_model.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <thread>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/trace.hpp"
#include "common/model/build_layers.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/rank_test.hpp"
#include "step0_single_gpu/objective.hpp"
#include "step5_zero1/sharded_optimizer.hpp"
#include "step6_zero2/gradient_sharder.hpp"

namespace ladder {
namespace {

constexpr std::uint64_t kSeed = 5;

ModelOptions shape(std::int64_t layers, bool is_tied) {
  return {.vocab_size = 150,
          .context = 6,
          .layers = layers,
          .heads = 2,
          .channels = 20,
          .tie_embeddings = is_tied};
}

class ShardedModelTest : public RankTest {
 protected:
  ShardedModelTest() { install_memory_ledger(); }

  // Whether this rank holds its shard and nothing else. Threads cannot tell.
  static ::testing::AssertionResult holds_its_shard(const ShardedModel& model,
                                                    std::int64_t before) {
    const std::int64_t whole_bytes = parameter_bytes() - before - 4 * model.plan().numel;
    if (!ranks_are_processes() || whole_bytes == 0) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << whole_bytes << " bytes of whole units";
  }
  static std::int64_t parameter_bytes() { return read_memory().live(MemoryCategory::kParameters); }

  template <class AnyModel>
  void backward(AnyModel& model) const {
    cross_entropy_sum(model.forward(tokens_), tokens_.roll(-1, 1)).backward();
  }
  // The gradient of a forward and backward, as it lies in a flat buffer; 0 where there is none.
  template <class AnyModel>
  at::Tensor gradient(AnyModel& model, const std::vector<NamedTensor>& leaves,
                      const FlatLayout& layout) const {
    backward(model);
    const at::Tensor flat = at::zeros({layout.numel});
    for (std::size_t t = 0; t < leaves.size(); ++t) {
      at::Tensor& grad = at::Tensor(leaves[t].tensor).mutable_grad();
      const FlatTensor& place = layout.tensors[t];
      if (grad.defined()) flat.narrow(0, place.start, place.numel).copy_(grad.flatten());
      grad.reset();
    }
    return flat;
  }

  const at::Tensor tokens_ = at::arange(12, at::kLong).view({2, 6}) + 20 * rank_;
};

TEST_ON_PROCESSES(ShardedModelTest, ConstructionNeverHoldsMoreThanTheShardAndTwoUnits) {
  for (const bool is_tied : {false, true}) {
    reset_memory_peaks();
    const std::int64_t before = read_memory().total_live_bytes;
    const ShardedModel model(layer_builder(shape(6, is_tied), kSeed), 1, comm_);
    std::int64_t largest = 0;
    for (const FlatUnit& unit : model.plan().layout.units) largest = std::max(largest, unit.numel);
    EXPECT_LE(read_memory().peak_bytes - before, 4 * (model.plan().numel + 2 * largest));
    EXPECT_EQ(read_memory().total_live_bytes - before, 4 * model.plan().numel);
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
      Model whole = build_layers(shape(3, is_tied), kSeed);
      freeze(whole.leaves(), prefixes);
      const std::int64_t before = parameter_bytes();
      ShardedModel model(layer_builder(shape(3, is_tied), kSeed), 1, comm_);
      freeze(model.leaves(), prefixes);
      const FlatLayout& layout = model.plan().layout;
      for (int step = 0; step < 2; ++step)
        EXPECT_TRUE(bits_equal(gradient(model, model.leaves(), layout),
                               gradient(whole, whole.leaves(), layout)));
      const bool has_embedding_frozen = prefixes.contains("wte") && prefixes.contains("wpe");
      if (!has_embedding_frozen) {
        EXPECT_TRUE(holds_its_shard(model, before));
      }
      const at::NoGradGuard no_grad;
      model.forward(tokens_);
      EXPECT_TRUE(holds_its_shard(model, before));
    }
  }
}

// As on a GPU, where backward runs on a thread of autograd.
TEST_ON_RANKS(ShardedModelTest, TracesTheGathersOfAnotherThread) {
  TraceLog log;
  const TraceScope scope(&log);
  ShardedModel model(layer_builder(shape(2, false), kSeed), 0, comm_);
  std::thread([&] { model.forward(tokens_); }).join();
  const auto is_gather = [](const TracedSpan& span) { return std::string(span.name) == "unshard"; };
  EXPECT_EQ(std::count_if(log.spans().begin(), log.spans().end(), is_gather), 4);
}

// A frozen tensor has no place in the plan of what is reduced and updated.
TEST_ON_RANKS(ShardedModelTest, TrainsAroundFrozenParameters) {
  const auto is_frozen = [](const std::string& name) {
    return name.starts_with("h.0.") || name == "wpe.weight" || name == "h.1.ln_2.bias";
  };
  const ModelBuilder frozen = [&](const OnUnit& on_unit, at::Device device) {
    const OnUnit freeze_first = [&](const Unit& unit) {
      for (const auto& [name, tensor] : unit.tensors) tensor.set_requires_grad(!is_frozen(name));
      if (on_unit) on_unit(unit);
    };
    return build_layers(shape(2, true), kSeed, freeze_first, device);
  };
  ShardedModel model(frozen, 1, comm_);
  const at::Tensor start = model.param_shard().clone();
  GradientSharder sharder(model.plan(), model.leaves(), comm_);
  ShardedOptimizer optimizer(model.plan(), model.plan().slices_of_shard(model.param_shard()),
                             model.plan().slices_of_shard(sharder.grad_shard()), {});
  sharder.arm(1);
  backward(model);
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

}  // namespace
}  // namespace ladder
