// A layout that is planned from shapes is that of the model that is built.
#include "common/train/layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "common/core/seed.hpp"
#include "common/core/unit.hpp"
#include "common/model/build_layers.hpp"
#include "common/model/family.hpp"

namespace ladder {
namespace {

void expect_equal(const FlatLayout& planned, const FlatLayout& built) {
  EXPECT_EQ(planned.precision, built.precision);
  EXPECT_EQ(planned.device, built.device);
  EXPECT_EQ(planned.numel, built.numel);
  EXPECT_EQ(planned.num_parameters, built.num_parameters);
  ASSERT_EQ(planned.units.size(), built.units.size());
  for (std::size_t u = 0; u < built.units.size(); ++u) {
    EXPECT_EQ(planned.units[u].name, built.units[u].name);
    EXPECT_EQ(planned.units[u].start, built.units[u].start);
    EXPECT_EQ(planned.units[u].numel, built.units[u].numel);
  }
  ASSERT_EQ(planned.tensors.size(), built.tensors.size());
  for (std::size_t i = 0; i < built.tensors.size(); ++i) {
    const FlatTensor &a = planned.tensors[i], &b = built.tensors[i];
    SCOPED_TRACE(b.name);
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.shape, b.shape);
    EXPECT_EQ(a.start, b.start);
    EXPECT_EQ(a.numel, b.numel);
    EXPECT_EQ(a.padded_numel, b.padded_numel);
    EXPECT_EQ(a.is_trainable, b.is_trainable);
    EXPECT_EQ(a.part, b.part);
  }
}

// Sizes that no alignment divides, and any precision and device.
TrainOptions drawn(ModelFamily family, Random& random) {
  const auto number = [&](std::int64_t least, std::int64_t most) {
    return least + random.below(most - least + 1);
  };
  TrainOptions options;
  ModelOptions& model = options.model;
  const bool is_gpt2 = family == ModelFamily::kGpt2, is_olmo2 = family == ModelFamily::kOlmo2;
  model.family = family;
  model.layers = number(1, 4);
  model.kv_heads = number(1, 4);
  model.heads = is_gpt2 ? model.kv_heads : model.kv_heads * number(1, 3);
  model.channels = model.heads * 2 * number(1, 9);
  model.head_channels = is_gpt2 ? 0 : 2 * number(1, 9);
  model.mlp_channels = number(1, 99);
  model.vocab_size = number(9, 70);
  model.context = number(1, 40);
  model.tie_embeddings = number(0, 1) == 1;
  model.product_parts = is_olmo2 ? 1 : model.kv_heads;
  const NumberFormat formats[] = {NumberFormat::kFp32, NumberFormat::kBf16, NumberFormat::kFp16};
  model.precision.params = formats[number(0, 2)];
  if (number(0, 1) == 1) model.precision.grads = model.precision.params;
  options.device = number(0, 1) == 1 ? Device::kCuda : Device::kCpu;
  return options;
}

TEST(Layout, IsThatOfTheModelThatIsBuilt) {
  Random random(7);
  for (const ModelFamily family : all_families()) {
    for (int i = 0; i < 20; ++i) {
      const TrainOptions options = drawn(family, random);
      const ModelOptions& model = options.model;
      SCOPED_TRACE(::testing::Message() << traits_of(family).name() << ", draw " << i);
      const std::int64_t multiple = 1 + random.below(3000);
      const Model whole = build_layers(model, options.seed, /*on_unit=*/{}, at::kMeta);
      expect_equal(layout_of(options, multiple),
                   plan_flat_layout(whole.units(), multiple, options.device));
      // A stage, and a tensor rank of it.
      const std::int64_t first = random.below(model.layers + 2);
      std::vector<std::int64_t> layers(
          static_cast<std::size_t>(1 + random.below(model.layers + 2 - first)));
      std::iota(layers.begin(), layers.end(), first);
      const auto total = static_cast<int>(model.product_parts);
      Parts parts = {.total = total, .first = static_cast<int>(random.below(total)), .own = 1};
      parts.own = 1 + static_cast<int>(random.below(total - parts.first));
      const Model piece =
          build_layers(model, options.seed, parts, layers, /*on_unit=*/{}, at::kMeta);
      expect_equal(layout_of(options, layers, parts),
                   plan_flat_layout(piece.units(), /*unit_multiple=*/1, options.device));
    }
  }
}

}  // namespace
}  // namespace ladder
