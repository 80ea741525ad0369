#include "common/comm/rank_order_fold.hpp"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "common/testing/closeness.hpp"

namespace ladder {
namespace {

TEST(SliceOf, CoversAllElementsInOrderEqualUpToOne) {
  for (const int num_slices : {1, 2, 3, 7}) {
    for (std::int64_t numel = 0; numel < 30; ++numel) {
      std::int64_t next = 0;
      for (int index = 0; index < num_slices; ++index) {
        const ElementRange range = slice_of(numel, num_slices, index);
        EXPECT_EQ(range.begin, next);
        EXPECT_EQ(range.numel, numel / num_slices + (index < numel % num_slices ? 1 : 0));
        next += range.numel;
      }
      EXPECT_EQ(next, numel);
    }
  }
}

std::byte* bytes(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

// The fold as each rank computes it, with its own piece as the target (all_reduce) or not
// (reduce_scatter).
at::Tensor fold_on(int own, bool in_place, const std::vector<at::Tensor>& values) {
  std::vector<at::Tensor> copies;
  std::vector<std::byte*> pieces;
  for (const at::Tensor& value : values) {
    copies.push_back(value.clone());
    pieces.push_back(bytes(copies.back()));
  }
  const auto own_index = static_cast<std::size_t>(own);
  const at::Tensor target = in_place ? copies[own_index] : at::empty_like(values[0]);
  fold_in_rank_order(pieces, own, bytes(target), target.scalar_type(), target.numel());
  for (std::size_t r = 0; r < values.size(); ++r) {
    if (in_place && (r == own_index || (r == 0 && own >= 2))) continue;  // the target, the scratch
    EXPECT_TRUE(bits_equal(copies[r], values[r])) << "piece " << r << " on rank " << own;
  }
  return target;
}

TEST(FoldInRankOrder, IsTheSameOnEveryRankInEveryBlock) {
  at::manual_seed(1);
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    for (int size = 1; size <= 5; ++size) {
      std::vector<at::Tensor> values;  // more than two blocks, not a multiple
      for (int r = 0; r < size; ++r) {
        values.push_back((at::randn({150001}) * at::randn({150001}).exp()).to(dtype));
      }
      at::Tensor expected = values[0].clone();
      for (int r = 1; r < size; ++r) expected += values[static_cast<std::size_t>(r)];
      for (int own = 0; own < size; ++own) {
        EXPECT_TRUE(bits_equal(fold_on(own, /*in_place=*/true, values), expected)) << own << size;
        EXPECT_TRUE(bits_equal(fold_on(own, /*in_place=*/false, values), expected)) << own << size;
      }
    }
  }
}

}  // namespace
}  // namespace ladder
