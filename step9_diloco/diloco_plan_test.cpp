#include "step9_diloco/diloco_plan.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <vector>

#include "common/testing/parse_options.hpp"
#include "step9_diloco/fragments.hpp"
#include "step9_diloco/train.hpp"

namespace ladder {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(DilocoPlan, AnAverageEndsWithItsRoundAndStartsADelayBefore) {
  struct Case {
    DilocoOptions options;
    std::vector<std::int64_t> starts, ends;  // of 12 inner steps
  };
  for (const auto& [options, starts, ends] : std::vector<Case>{
           {{.sync_every = 4}, {4, 8, 12}, {4, 8, 12}},
           {{.sync_every = 6, .num_fragments = 2}, {3, 6, 9, 12}, {3, 6, 9, 12}},
           {{.sync_every = 12, .num_fragments = 2, .sync_delay = 2}, {4, 10}, {6, 12}},
           {{.sync_every = 6, .num_fragments = 3, .sync_delay = 1},
            {1, 3, 5, 7, 9, 11},
            {2, 4, 6, 8, 10, 12}}}) {
    std::vector<std::int64_t> found_starts, found_ends;
    for (std::int64_t step = 1; step <= 12; ++step) {
      if (plan_diloco(options, step).starts) found_starts.push_back(step);
      if (plan_diloco(options, step).finishes) found_ends.push_back(step);
    }
    EXPECT_EQ(found_starts, starts);
    EXPECT_EQ(found_ends, ends);
  }
}

TEST(DilocoPlan, FragmentsTakeTurns) {
  const DilocoOptions options = {.sync_every = 6, .num_fragments = 2};
  EXPECT_EQ(steps_per_round(options), 3);
  for (const std::int64_t outer_steps : {0, 1, 2, 3})
    EXPECT_EQ(fragment_of_round(options, outer_steps), outer_steps % 2);
}

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
  EXPECT_THAT(
      [] {
        plan_fragments(layout_of_tensors({16, 16}), 3);
      },
      ThrowsMessage<UsageError>(HasSubstr("--fragments 3 is more than the 2 tensors")));
}

}  // namespace
}  // namespace ladder
