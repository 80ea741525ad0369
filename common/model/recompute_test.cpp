#include "common/model/recompute.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/torch_types.hpp"
#include "common/core/trace.hpp"
#include "common/model/build_layers.hpp"
#include "common/model/family.hpp"
#include "common/model/model_cost.hpp"
#include "common/model/weight_gradients.hpp"
#include "common/testing/expect_throws.hpp"

namespace ladder {
namespace {

ModelOptions shape(Recompute recompute, ModelFamily family = ModelFamily::kGpt2) {
  return {.family = family,
          .vocab_size = 13,
          .context = 8,
          .layers = 3,
          .heads = 2,
          .channels = 12,
          .tie_embeddings = false,
          .recompute = recompute};
}

at::Tensor tokens(int microbatch) {
  at::manual_seed(20 + static_cast<std::uint64_t>(microbatch));
  return at::randint(13, {2, 8}, at::kLong);
}

at::Tensor loss_of(const Model& model, const at::Tensor& ids) {
  return at::cross_entropy_loss(widened(model.forward(ids)).flatten(0, 1),
                                ids.roll(-1, 1).flatten(), {}, at::Reduction::Sum);
}

using Freeze = std::function<bool(const std::string& name)>;

// The gradients of two microbatches, undefined where there is none. `queue`: for deferred halves.
std::vector<at::Tensor> gradients(const ModelOptions& options, const Freeze& is_frozen,
                                  bool is_halved) {
  const Model model = build_layers(options, 5);
  for (const auto& [name, leaf] : model.leaves()) leaf.set_requires_grad(!is_frozen(name));
  for (int microbatch = 0; microbatch < 2; ++microbatch) {
    WeightGradientQueue queue;
    at::Tensor loss;
    {
      const DeferWeightGradients scope(is_halved ? &queue : nullptr);
      loss = loss_of(model, tokens(microbatch));
    }
    EXPECT_TRUE(queue.empty());
    loss.backward();
    EXPECT_EQ(!queue.empty(), is_halved);
    queue.run();
  }
  std::vector<at::Tensor> all;
  for (const NamedTensor& leaf : model.leaves()) all.push_back(leaf.tensor.grad());
  return all;
}

// Without a gradient at the first block's input, its parameters still have theirs.
TEST(Recompute, GivesTheSameBits) {
  const std::vector<Freeze> freezes = {
      [](const std::string&) { return false; },
      [](const std::string& name) { return name.starts_with("w") || name.starts_with("embed"); },
      [](const std::string& name) { return name.find(".0.") != std::string::npos; },
      [](const std::string& name) {
        return name.ends_with("weight") && name.find(".1.") != std::string::npos;
      }};
  const auto expect_same = [&](ModelFamily family, at::ScalarType type, std::size_t frozen,
                               bool is_tied, bool is_halved) {
    SCOPED_TRACE(concat(traits_of(family).name(), " in ", at::toString(type),
                        is_tied ? ", tied" : "", is_halved ? ", halves" : "", ", ", frozen));
    const auto with = [&](Recompute recompute) {
      ModelOptions options = shape(recompute, family);
      options.tie_embeddings = is_tied;
      options.precision.params = format_of(type);
      if (family == ModelFamily::kGpt2 && frozen == 0) options.gelu = GeluForm::kExact;
      return gradients(options, freezes[frozen], is_halved);
    };
    const std::vector<at::Tensor> kept = with(Recompute::kNone);
    for (const Recompute recompute : {Recompute::kCheap, Recompute::kBlocks}) {
      SCOPED_TRACE(recompute == Recompute::kCheap ? "cheap" : "blocks");
      const std::vector<at::Tensor> again = with(recompute);
      for (std::size_t p = 0; p < kept.size(); ++p) {
        ASSERT_EQ(again[p].defined(), kept[p].defined()) << p;
        if (kept[p].defined()) {
          EXPECT_TRUE(again[p].equal(kept[p])) << p;
        }
      }
    }
  };
  for (const ModelFamily family : all_families()) {
    for (const bool is_halved : {false, true}) {
      for (std::size_t frozen = 0; frozen < freezes.size(); ++frozen)
        expect_same(family, at::kFloat, frozen, /*is_tied=*/frozen % 2 == 0, is_halved);
      for (const at::ScalarType type : {at::kBFloat16, at::kHalf})
        expect_same(family, type, 0, /*is_tied=*/is_halved, is_halved);
    }
  }
}

// A layer that counts its calls, of which `num_with_graph` have a graph.
struct Counting {
  int num_calls = 0, num_with_graph = 0;
  bool needs_input_gradient = false;  // the last one
  at::Tensor weight = (at::manual_seed(1), at::randn({4, 4})).set_requires_grad(true);
  Layer layer = {{"counting", {{"weight", weight}}}, [this](const at::Tensor& x) {
                   ++num_calls;
                   needs_input_gradient = x.requires_grad();
                   const at::Tensor y = x.matmul(weight).tanh();
                   num_with_graph += y.requires_grad();
                   return y;
                 }};
};

at::Tensor some_input() {
  at::manual_seed(2);
  return at::randn({3, 4}).set_requires_grad(true);
}

TEST(Recompute, ComputesTwiceToTrainAndOnceOtherwise) {
  Counting counting;
  const auto forward = recomputed(counting.layer);
  const at::Tensor x = some_input(), loss = forward(x).sum();
  EXPECT_EQ(std::pair(counting.num_calls, counting.num_with_graph), std::pair(1, 0));
  loss.backward();
  EXPECT_EQ(std::pair(counting.num_calls, counting.num_with_graph), std::pair(2, 1));
  EXPECT_TRUE(counting.needs_input_gradient);
  {
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(forward(x).requires_grad());
  }
  EXPECT_EQ(counting.num_calls, 3);
  forward(x.detach()).sum().backward();  // only the weight needs a gradient
  EXPECT_EQ(counting.num_calls, 5);
  EXPECT_FALSE(counting.needs_input_gradient);
  counting.weight.set_requires_grad(false);
  EXPECT_FALSE(forward(x.detach()).requires_grad());
  EXPECT_EQ(counting.num_calls, 6);
  forward(x).sum().backward();  // only the input needs a gradient
  EXPECT_EQ(counting.num_calls, 8);
}

// Those before the addition get the gradient, and may change it; those after it find the sum.
TEST(Recompute, HooksOfParametersFireOnce) {
  Counting counting;
  std::vector<at::Tensor> parts;
  int num_added = 0;
  counting.weight.register_hook([&](const at::Tensor& part) {
    parts.push_back(part.clone());
    return 2 * part;
  });
  class Hook final : public torch::autograd::PostAccumulateGradHook {
   public:
    explicit Hook(int& count) : count_(count) {}
    void operator()(const at::Tensor& /*parameter*/) override { ++count_; }

   private:
    int& count_;
  };
  torch::autograd::impl::set_post_acc_grad_hooks(counting.weight,
                                                 std::make_unique<Hook>(num_added));
  bool has_arrived = false;
  const at::Tensor y = recomputed(counting.layer)(some_input());
  y.register_hook([&](const at::Tensor&) {
    has_arrived = true;
    EXPECT_TRUE(parts.empty());  // ZeRO-3 brings the parameters here
    EXPECT_EQ(counting.num_calls, 1);
  });
  y.sum().backward();
  EXPECT_TRUE(has_arrived);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(num_added, 1);
  EXPECT_TRUE(counting.weight.grad().equal(2 * parts[0]));
}

TEST(Recompute, GoesBackwardAsOftenAsTheGraphIsThere) {
  Counting once, twice;
  once.layer.forward(some_input()).sum().backward();
  const at::Tensor loss = recomputed(twice.layer)(some_input()).sum();
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_TRUE(twice.weight.grad().equal(once.weight.grad()));
  loss.backward();
  EXPECT_TRUE(twice.weight.grad().equal(2 * once.weight.grad()));
  EXPECT_THROW(loss.backward(), c10::Error);
  const at::Tensor again = recomputed(twice.layer)(some_input()).sum();
  expect_throws<CheckError>([&] { again.backward({}, true, /*create_graph=*/true); },
                            {"--recompute none"});
  const at::Tensor x = some_input(), changed = recomputed(twice.layer)(x).sum();
  x.detach().add_(1);
  EXPECT_THROW(changed.backward(), c10::Error);
}

// Backward runs outside the scopes of forward, and inside another one.
TEST(Recompute, RemembersWhoListenedInForward) {
  const ModelOptions options = shape(Recompute::kBlocks);
  const Model model = build_layers(options, 5);
  TraceLog log;
  WeightGradientQueue other;
  at::Tensor loss;
  {
    const TraceScope traced(&log);
    loss = loss_of(model, tokens(0));
  }
  const DeferWeightGradients scope(&other);
  loss.backward();
  EXPECT_TRUE(other.empty());
  int num_again = 0;
  for (const TracedSpan& span : log.spans()) num_again += span.name == std::string("recompute");
  EXPECT_EQ(num_again, 3);
}

// Where the most is held: in a block's backward, when it has just been computed again. The blocks
// before it keep their inputs, those behind it nothing. The gradient of its output waits.
TEST(Recompute, HoldsTheInputsAndOneBlock) {
  install_memory_ledger();
  for (const ModelFamily family : all_families()) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      SCOPED_TRACE(concat(traits_of(family).name(), " in ", at::toString(type)));
      ModelOptions options = shape(Recompute::kNone, family);
      options.precision.params = format_of(type);
      const auto kept = [&](Recompute recompute, std::int64_t num_layers) {
        ModelOptions more = options;
        more.layers = num_layers;
        more.recompute = recompute;
        return saved_activation_bytes(more, 2);
      };
      const std::int64_t of_block = kept(Recompute::kNone, 2) - kept(Recompute::kNone, 1);
      const std::int64_t of_input = kept(Recompute::kBlocks, 2) - kept(Recompute::kBlocks, 1);
      EXPECT_EQ(of_input, 16 * 12 * at::elementSize(type));

      Model model = build_layers(options, 5);
      for (const NamedTensor& named : model.leaves()) {
        at::Tensor leaf = named.tensor;
        leaf.mutable_grad() = at::zeros_like(leaf);
      }
      loss_of(model, tokens(0)).backward();  // makes the table of rotary positions
      std::vector<std::int64_t> held;
      std::int64_t before = 0;
      const auto now = [&] { return read_memory().live(MemoryCategory::kActivations) - before; };
      for (std::size_t block = 1; block <= 3; ++block) {
        Layer watched = model.layers[block];
        watched.forward = [forward = watched.forward, &held, &now](const at::Tensor& x) {
          const at::Tensor y = forward(x);
          if (y.requires_grad())
            y.register_hook([&](const at::Tensor& /*gradient*/) { held.push_back(now()); });
          return y;
        };
        model.layers[block].forward = recomputed(watched);
      }
      const at::Tensor ids = tokens(0);
      before = read_memory().live(MemoryCategory::kActivations);
      const at::Tensor loss = loss_of(model, ids);
      loss.backward();
      const std::int64_t scalars = 2 * now();  // the loss, which is left, and its gradient
      EXPECT_EQ(scalars, 8);
      std::vector<std::int64_t> wanted;
      for (std::int64_t block = 3; block >= 1; --block)
        wanted.push_back(block * of_input + (of_block - of_input) + of_input + scalars);
      EXPECT_EQ(held, wanted);
    }
  }
}

}  // namespace
}  // namespace ladder
