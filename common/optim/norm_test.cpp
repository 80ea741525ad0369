#include "common/optim/norm.hpp"

#include <ATen/Context.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/core/check.hpp"

namespace ladder {
namespace {

std::vector<Unit> unit_of(const std::vector<std::int64_t>& numels) {
  std::vector<Unit> units;
  for (std::size_t i = 0; i < numels.size(); ++i) {
    const std::string name = concat("t", i);
    units.push_back({name, {{name, at::randn({numels[i]}).set_requires_grad(true)}}});
  }
  return units;
}

TEST(Norm, IsTheEuclideanNorm) {
  at::manual_seed(1);
  const FlatModel model(unit_of({1, 1023, 5000}));
  const double norm = flat_norm(model.layout(), model.params());
  EXPECT_NEAR(norm, model.params().to(at::kDouble).norm().item<double>(), 1e-9);
}

TEST(Norm, MissingElementsOfTheLastBlockCountAsZerosToTheBit) {
  at::manual_seed(4);
  for (const std::int64_t numel : {1, 7, 15, 17, 31, 1000, 1023, 1025, 2047}) {
    const at::Tensor values = at::randn({numel});
    at::Tensor padded = at::zeros({num_norm_blocks(numel) * kNormBlock});
    padded.narrow(0, 0, numel).copy_(values);
    EXPECT_EQ(block_sums({values}), block_sums({padded})) << numel << " elements";
  }
}

TEST(Norm, SlicesGiveTheWholesBlockSums) {  // the sharded steps rely on this
  at::manual_seed(3);
  const FlatModel model(unit_of({10000}), 4 * kNormBlock);
  EXPECT_EQ(block_sums({model.params()}), block_sums(model.params().chunk(4)));
}

TEST(Clip, ScalesDownOnly) {
  const Clipping is_short(5.0, /*clip_norm=*/10.0), is_long(5.0, 1.0), is_off(5.0, 0.0);
  EXPECT_EQ(is_short.factor, 1.0);
  EXPECT_DOUBLE_EQ(is_long.factor, 1.0 / (5.0 + 1e-6));
  EXPECT_EQ(is_off.factor, 1.0);
  for (const Clipping& clip : {is_short, is_long, is_off}) EXPECT_EQ(clip.norm, 5.0);
}

// A gradient of norm 5, scaled by 1024, is clipped as one of norm 5.
TEST(Clip, DividesByTheLossScaleFirst) {
  for (const double clip_norm : {10.0, 1.0, 0.0}) {
    const Clipping plain(5.0, clip_norm), scaled(5.0 * 1024, clip_norm, 1024);
    EXPECT_EQ(scaled.norm, 5.0);
    EXPECT_EQ(scaled.factor, plain.factor / 1024);
  }
}

}  // namespace
}  // namespace ladder
