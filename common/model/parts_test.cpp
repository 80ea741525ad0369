#include "common/model/parts.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <map>
#include <numeric>
#include <thread>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/torch_types.hpp"
#include "common/core/tree_sum.hpp"
#include "common/model/build_layers.hpp"
#include "common/model/pieces.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/expect_throws.hpp"

namespace ladder {
namespace {

std::vector<at::Tensor> random_tensors(int count) {
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < count; ++i) tensors.push_back(at::randn({37}) * (i + 1));
  return tensors;
}

at::Tensor by_tree(const std::vector<at::Tensor>& values) {
  const auto leaf = [&](int i) { return values[static_cast<std::size_t>(i)]; };
  return tree_sum(0, static_cast<int>(values.size()), leaf, std::plus<at::Tensor>());
}

TEST(Parts, DifferByOneAtMostAndCoverAll) {
  for (const std::int64_t numel : {1, 4, 7, 258}) {
    for (int total = 1; total <= std::min<std::int64_t>(numel, 5); ++total) {
      EXPECT_EQ(part_begin(numel, 0, total), 0);
      EXPECT_EQ(part_begin(numel, total, total), numel);
      for (int part = 0; part < total; ++part) {
        const std::int64_t length =
            part_begin(numel, part + 1, total) - part_begin(numel, part, total);
        EXPECT_TRUE(length == numel / total || length == numel / total + 1);
      }
    }
  }
}

TEST(Parts, AreAddedUpByTheTreeForwardAndBackward) {
  for (int total = 2; total <= 6; ++total) {
    const Parts parts = all_parts(total);
    const std::vector<at::Tensor> factors = random_tensors(total);
    const at::Tensor x = at::randn({37}).set_requires_grad(true);
    std::vector<at::Tensor> products;
    const at::Tensor y = sum_of_parts(parts, x, [&](int i, const at::Tensor& input) {
      EXPECT_EQ(input.const_data_ptr(), x.const_data_ptr());  // no copy
      return products.emplace_back(input * factors[static_cast<std::size_t>(i)]);
    });
    EXPECT_TRUE(y.equal(by_tree(products))) << total;
    const at::Tensor gradient = at::randn({37});
    y.backward(gradient);
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& factor : factors) gradients.push_back(gradient * factor);
    EXPECT_TRUE(x.grad().equal(by_tree(gradients))) << total;
  }
}

// Eight parts, of which three partial products or gradients wait at a time, and a fourth comes.
TEST(Parts, AreNotAllThereAtOnce) {
  constexpr std::int64_t kBytes = 4 * 100'000;
  install_memory_ledger();
  const at::Tensor x = at::randn({100'000}).set_requires_grad(true);
  const at::Tensor gradient = at::randn({100'000});
  const auto peak_of = [](const auto& act) {
    const std::int64_t before = read_memory().total_live_bytes;
    reset_memory_peaks();
    act();
    return read_memory().peak_bytes - before;
  };
  at::Tensor y;
  EXPECT_LE(peak_of([&] {
              y = sum_of_parts(all_parts(8), x,
                               [](int, const at::Tensor& input) { return input + 1; });
            }),
            5 * kBytes);
  EXPECT_LE(peak_of([&] { y.backward(gradient); }), 5 * kBytes);
}

TEST(Parts, OfOtherOwnersAreAskedForOnceEachWay) {
  int num_asked = 0;
  const Parts parts = {
      .total = 4, .first = 1, .own = 1, .start_sum = [&](const at::Tensor& own) -> Parts::Wait {
        ++num_asked;
        return [=] { at::Tensor(own).add_(100); };
      }};
  const at::Tensor x = at::full({3}, 2.0).set_requires_grad(true);
  std::vector<at::Tensor> products;
  const at::Tensor y = sum_of_parts(
      parts, x, [&](int, const at::Tensor& input) { return products.emplace_back(input * 3); });
  EXPECT_EQ(num_asked, 1);
  EXPECT_TRUE(y.equal(at::full({3}, 106.0)));
  EXPECT_TRUE(products[0].equal(at::full({3}, 6.0)));  // a part's own product stays
  const at::Tensor gradient = at::full({3}, 1.0);
  y.backward(gradient);
  EXPECT_EQ(num_asked, 2);
  EXPECT_TRUE(x.grad().equal(at::full({3}, 103.0)));
  EXPECT_TRUE(gradient.equal(at::full({3}, 1.0)));
}

TEST(Parts, OnePartIsTheLayerItself) {
  const at::Tensor x = at::randn({3});
  const at::Tensor y = sum_of_parts({}, x, [&](int, const at::Tensor& input) {
    EXPECT_TRUE(input.is_same(x));
    return input;
  });
  EXPECT_TRUE(y.is_same(x));
}

// ---- whole models ------------------------------------------------------------------------------

struct Case {
  ModelFamily family;
  bool is_tied;
  std::int64_t kv_heads;
  std::int64_t head_channels = 0;
};
const Case kCases[] = {{ModelFamily::kGpt2, true, 0},   {ModelFamily::kGpt2, false, 0},
                       {ModelFamily::kLlama, true, 4},  {ModelFamily::kLlama, false, 8},
                       {ModelFamily::kQwen2, true, 4},  {ModelFamily::kQwen3, false, 4, 10},
                       {ModelFamily::kSmolLm3, true, 4}};

ModelOptions shape_of(const Case& of, std::int64_t parts) {
  return {.family = of.family,
          .vocab_size = 61,  // does not divide into 2 or 4
          .context = 9,
          .layers = 2,
          .heads = 8,
          .kv_heads = of.kv_heads,
          .head_channels = of.head_channels,
          .channels = 48,
          .mlp_channels = 50,  // nor does that into 4
          .tie_embeddings = of.is_tied,
          .no_rope_interval = of.family == ModelFamily::kSmolLm3 ? 2 : 0,
          .product_parts = parts};
}

std::vector<std::int64_t> all_layers(const ModelOptions& options) {
  std::vector<std::int64_t> layers(static_cast<std::size_t>(options.layers + 2));
  std::iota(layers.begin(), layers.end(), 0);
  return layers;
}

constexpr std::uint64_t kSeed = 3;

// The tensors' values or gradients by name, with parts put back into the whole.
std::map<std::string, at::Tensor> wholes(const Model& model, bool of_gradients) {
  std::map<std::string, at::Tensor> found;
  for (const Unit& unit : model.units()) {
    for (const auto& [name, leaf] : unit.tensors) {
      const at::Tensor values = of_gradients ? leaf.grad() : leaf.detach();
      const auto part = unit.parts.find(name);
      if (part == unit.parts.end()) {
        found[name] = values;
        continue;
      }
      const TensorPart& of = part->second;
      at::Tensor& whole = found.try_emplace(of.whole, at::full(of.shape, 1e9)).first->second;
      const at::Tensor place = place_of(of, whole);
      place.copy_(values.reshape(place.sizes()));
    }
  }
  return found;
}

// Some function of the logits; the weights are the same for each part of them.
at::Tensor backward(const Model& model, const at::Tensor& tokens, std::int64_t begin,
                    std::int64_t end) {
  const at::Tensor logits = model.forward(tokens);
  const at::Tensor weights =
      at::arange(61 * tokens.numel()).view({tokens.size(0), tokens.size(1), 61}).sin();
  (logits * weights.slice(2, begin, end)).sum().backward();
  return logits.detach();
}

TEST(ModelInParts, IsTheModelUpToRounding) {
  const at::Tensor tokens = at::randint(61, {2, 9}, at::kLong);
  for (const Case& of : kCases) {
    const Model whole = build_layers(shape_of(of, 1), kSeed);
    const at::Tensor wanted = backward(whole, tokens, 0, 61);
    for (const std::int64_t total : {2, 4}) {
      const Model model = build_layers(shape_of(of, total), kSeed);
      const auto start = wholes(model, false), wanted_start = wholes(whole, false);
      ASSERT_EQ(start.size(), wanted_start.size());
      for (const auto& [name, values] : wanted_start)
        EXPECT_TRUE(start.at(name).equal(values)) << name;
      EXPECT_LE(relative_distance(backward(model, tokens, 0, 61), wanted), 2e-6);
      const auto gradients = wholes(model, true);
      for (const auto& [name, values] : wholes(whole, true))
        EXPECT_LE(relative_distance(gradients.at(name), values), 1e-5) << name;
    }
  }
}

TEST(ModelInParts, ListsWhatAllPartsUseFirst) {
  for (const Case& of : kCases) {
    for (const Unit& unit : build_layers(shape_of(of, 4), kSeed).units()) {
      int last = -1;
      for (const auto& [name, leaf] : unit.tensors) {
        const auto part = unit.parts.find(name);
        const int index = part == unit.parts.end() ? -1 : part->second.index;
        EXPECT_GE(index, last) << unit.name << ": " << name;
        last = index;
      }
    }
  }
}

// Ranks as threads: each has some of the parts, and they add up by the tree what each has.
class Owners {
 public:
  explicit Owners(int count) : values_(static_cast<std::size_t>(count)), meeting_(count) {}

  // With rows: each owner has the rows of its number between layers.
  Parts parts_of(int owner, int total, bool has_rows = false) {
    const int count = total / static_cast<int>(values_.size());
    const auto sum_ranks = [=, this](const at::Tensor& own) {
      values_[static_cast<std::size_t>(owner)] = own.clone();
      meeting_.arrive_and_wait();
      const at::Tensor sum = by_tree(values_);
      meeting_.arrive_and_wait();
      at::Tensor(own).copy_(sum);
    };
    Parts parts = {
        .total = total,
        .first = owner * count,
        .own = count,
        .start_sum = [=](const at::Tensor& own) -> Parts::Wait { return [=] { sum_ranks(own); }; }};
    if (!has_rows) return parts;
    const auto num_owners = static_cast<std::int64_t>(values_.size());
    parts.start_sum_of_rows = [=](const at::Tensor& all, const at::Tensor& own) -> Parts::Wait {
      return [=] {
        const at::Tensor sum = all.clone();
        sum_ranks(sum);
        at::Tensor(own).copy_(sum.chunk(num_owners)[static_cast<std::size_t>(owner)]);
      };
    };
    parts.gather_rows = [=, this](const at::Tensor& own) {
      values_[static_cast<std::size_t>(owner)] = own.clone();
      meeting_.arrive_and_wait();
      const at::Tensor all = at::cat(values_);
      meeting_.arrive_and_wait();
      return all;
    };
    return parts;
  }

 private:
  std::vector<at::Tensor> values_;
  std::barrier<> meeting_;
};

// The bits do not depend on who computes which part.
TEST(ModelInParts, HasTheSameBitsHoweverManyComputeIt) {
  const at::Tensor tokens = at::randint(61, {3, 8}, at::kLong);
  for (const Case& of : kCases) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      ModelOptions options = shape_of(of, 4);
      options.precision.params = format_of(type);
      const Model alone = build_layers(options, kSeed);
      const at::Tensor wanted = backward(alone, tokens, 0, 61);
      const auto wanted_gradients = [&] {
        std::map<std::string, at::Tensor> gradients;
        for (const auto& [name, leaf] : alone.leaves()) gradients[name] = leaf.grad();
        return gradients;
      }();
      for (const auto& [count, has_rows] :
           {std::pair(2, false), std::pair(4, false), std::pair(2, true), std::pair(4, true)}) {
        Owners owners(count);
        std::vector<std::thread> threads;
        for (int owner = 0; owner < count; ++owner) {
          threads.emplace_back([&, owner, count = count, has_rows = has_rows] {
            const Parts parts = owners.parts_of(owner, 4, has_rows);
            const Model model = build_layers(options, kSeed, parts, all_layers(options));
            const std::int64_t begin = part_begin(61, parts.first, 4),
                               end = part_begin(61, parts.first + parts.own, 4);
            const at::Tensor logits = backward(model, tokens, begin, end);
            EXPECT_TRUE(logits.equal(wanted.slice(2, begin, end)));
            for (const auto& [name, leaf] : model.leaves())
              EXPECT_TRUE(leaf.grad().equal(wanted_gradients.at(name)))
                  << name << " of owner " << owner << " of " << count << ", " << type
                  << (has_rows ? ", which have rows" : "");
          });
        }
        for (std::thread& thread : threads) thread.join();
      }
    }
  }
}

TEST(ModelInParts, RefusesWhatDoesNotDivide) {
  ModelOptions options = shape_of(kCases[2], 8);
  expect_throws<UsageError>([&] { build_layers(options, kSeed); }, {"--product-parts 8"});
  options.product_parts = 0;
  expect_throws<UsageError>([&] { build_layers(options, kSeed); }, {"--product-parts is 0"});
}

}  // namespace
}  // namespace ladder
