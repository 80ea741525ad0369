#include "step9_diloco/diloco_plan.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <vector>

#include "common/testing/expect_throws.hpp"
#include "common/testing/parse_options.hpp"
#include "step9_diloco/fragments.hpp"
#include "step9_diloco/train.hpp"

namespace ladder {
namespace {

TEST(DilocoPlan, TheOuterOptimizersDefaultsAreThePapers) {
  EXPECT_EQ(DilocoOptions{}.outer_lr, 0.7);
  EXPECT_EQ(DilocoOptions{}.outer_momentum, 0.9);
}

TEST(DilocoPlan, ImpossibleOptionsAreRefused) {
  const auto refuse = [](const std::vector<const char*>& words, const char* message) {
    expect_refused(step9::trainer(), words, {message});
  };
  refuse({"--sync-every", "2", "--fragments", "3"}, "--fragments 3 is more than --sync-every 2");
  refuse({"--sync-every", "7", "--fragments", "2"}, "--sync-every 7 is not divisible");
  refuse({"--sync-every", "6", "--fragments", "2", "--sync-delay", "3"}, "from 0 to 2");
  refuse({"--alpha", "1.5"}, "--alpha is 1.5");
  refuse({"--outer-momentum", "1"}, "--outer-momentum");
}

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

TEST(Fragments, AreAboutEquallyLargeAndHaveATensorEach) {
  using Sizes = std::vector<std::int64_t>;
  struct Case {
    Sizes tensors;
    std::int64_t num_fragments;
    Sizes fragments;
  };
  for (const auto& [tensors, num_fragments, fragments] :
       std::vector<Case>{{{16, 5, 32}, 1, {64}},
                         {{16, 16, 32, 32, 16, 16}, 2, {64, 64}},
                         {{16, 16, 32, 32, 16, 16}, 4, {32, 32, 32, 32}},
                         {{16, 16, 16, 16000}, 2, {48, 16000}},
                         {{16, 16, 16, 16000}, 4, {16, 16, 16, 16000}},
                         {{16000, 16, 16}, 3, {16000, 16, 16}}})
    EXPECT_EQ(sizes_of(plan_fragments(layout_of_tensors(tensors), num_fragments)), fragments);
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
  expect_throws<UsageError>(
      [] {
        plan_fragments(layout_of_tensors({16, 16}), 3);
      },
      {"--fragments 3 is more than the 2 tensors"});
}

}  // namespace
}  // namespace ladder
