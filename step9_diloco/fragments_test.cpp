#include "step9_diloco/fragments.hpp"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/core/check.hpp"

namespace ladder {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

FlatLayout layout_of_tensors(const std::vector<std::int64_t>& sizes) {
  Unit unit = {"unit", {}};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    unit.tensors.push_back(
        {"tensor" + std::to_string(i),
         at::empty({sizes[i]}, at::TensorOptions(at::kFloat).device(at::kMeta))});
  }
  return plan_flat_layout({unit});
}

std::vector<std::int64_t> sizes_of(const std::vector<Fragment>& fragments) {
  std::vector<std::int64_t> sizes;
  for (const Fragment& fragment : fragments) sizes.push_back(fragment.numel);
  return sizes;
}

TEST(Fragments, OneFragmentIsTheModel) {
  EXPECT_EQ(sizes_of(plan_fragments(layout_of_tensors({16, 5, 32}), 1)),
            (std::vector<std::int64_t>{64}));
}

TEST(Fragments, AreAboutEquallyLarge) {
  const FlatLayout layout = layout_of_tensors({16, 16, 32, 32, 16, 16});
  EXPECT_EQ(sizes_of(plan_fragments(layout, 2)), (std::vector<std::int64_t>{64, 64}));
  EXPECT_EQ(sizes_of(plan_fragments(layout, 4)), (std::vector<std::int64_t>{32, 32, 32, 32}));
}

TEST(Fragments, EachHasATensor) {
  const FlatLayout layout = layout_of_tensors({16, 16, 16, 16000});
  for (std::int64_t n = 1; n <= 4; ++n) {
    const std::vector<Fragment> fragments = plan_fragments(layout, n);
    EXPECT_EQ(static_cast<std::int64_t>(fragments.size()), n);
    EXPECT_EQ(fragments.back().numel, n == 1 ? 16048 : 16000);
  }
  EXPECT_EQ(sizes_of(plan_fragments(layout_of_tensors({16000, 16, 16}), 3)),
            (std::vector<std::int64_t>{16000, 16, 16}));
}

TEST(Fragments, AreViewsOfWholeTensors) {
  const FlatLayout layout = layout_of_tensors({7, 100, 33, 16, 250});
  const at::Tensor flat = at::arange(layout.numel, at::kFloat);
  for (std::int64_t n = 1; n <= 5; ++n) {
    std::int64_t end = 0;
    for (const Fragment& fragment : plan_fragments(layout, n)) {
      EXPECT_EQ(fragment.start, end);  // no gaps, and no overlaps
      end += fragment.numel;
      EXPECT_EQ(fragment.of(flat).numel(), fragment.numel);
      EXPECT_EQ(fragment.of(flat)[0].item<float>(), static_cast<float>(fragment.start));
      EXPECT_TRUE(std::ranges::any_of(
          layout.tensors, [&](const FlatTensor& t) { return t.start == fragment.start; }));
    }
    EXPECT_EQ(end, layout.numel);
  }
}

TEST(Fragments, MoreThanTensorsAreRefused) {
  EXPECT_THAT(
      [] {
        plan_fragments(layout_of_tensors({16, 16}), 3);
      },
      ThrowsMessage<UsageError>(HasSubstr("--fragments 3 is more than the 2 tensors")));
}

}  // namespace
}  // namespace ladder
