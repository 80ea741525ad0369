#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "common/comm/contract/rank_values.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/rank_test.hpp"

namespace ladder {
namespace {

class Reductions : public RankTest {
 protected:
  std::vector<std::int64_t> hostile_numels() const {
    return {0, 1, 2, 3, size_ - 1, size_, size_ + 1, 1000, 100003};
  }
};

TEST_ON_RANKS(Reductions, AllReduceIsTheTree) {
  for (const at::ScalarType dtype : kReducible) {
    for (const std::int64_t numel : hostile_numels()) {
      const at::Tensor tensor = values_of(rank_, numel, dtype);
      comm_.all_reduce(tensor)->wait();
      EXPECT_TRUE(bits_equal(tensor, fold_of_all(size_, numel, dtype))) << dtype << " " << numel;
    }
  }
}

TEST_ON_RANKS(Reductions, ReduceScatterIsTheTree) {
  for (const at::ScalarType dtype : kReducible) {
    for (const std::int64_t numel : {0, 1, 3, 1000, 33335}) {
      const at::Tensor full = values_of(rank_, size_ * numel, dtype);
      const at::Tensor shard = at::zeros({numel}, dtype);
      const at::Tensor expected =
          fold_of_all(size_, size_ * numel, dtype).narrow(0, rank_ * numel, numel);
      comm_.reduce_scatter(full, shard)->wait();
      EXPECT_TRUE(bits_equal(shard, expected)) << dtype << " " << numel;
      EXPECT_TRUE(bits_equal(full, values_of(rank_, size_ * numel, dtype))) << "full is only read";
      // In place: the shard is its own slice of full.
      const at::Tensor own_slice = full.narrow(0, rank_ * numel, numel);
      comm_.reduce_scatter(full, own_slice)->wait();
      EXPECT_TRUE(bits_equal(own_slice, expected)) << dtype << " " << numel << " in place";
      own_slice.copy_(values_of(rank_, size_ * numel, dtype).narrow(0, rank_ * numel, numel));
      EXPECT_TRUE(bits_equal(full, values_of(rank_, size_ * numel, dtype))) << "so is the rest";
    }
  }
}

TEST_ON_RANKS(Reductions, StartsWithValuesNotWithZero) {
  const at::Tensor tensor = at::full({11}, -0.0);
  comm_.all_reduce(tensor)->wait();
  EXPECT_TRUE(bits_equal(tensor, at::full({11}, -0.0)));
}

TEST_ON_RANKS(Reductions, LeavesNeighboursAloneAtAnyAlignment) {
  for (const std::int64_t offset : {1, 3}) {
    const at::Tensor memory = at::full({1100}, 7.0f);
    const at::Tensor tensor = memory.narrow(0, offset, 1001);
    tensor.copy_(values_of(rank_, 1001, at::kFloat));
    comm_.all_reduce(tensor)->wait();
    EXPECT_TRUE(bits_equal(tensor, fold_of_all(size_, 1001, at::kFloat)));
    EXPECT_TRUE(bits_equal(memory.narrow(0, 0, offset), at::full({offset}, 7.0f)));
    const std::int64_t behind = 1100 - offset - 1001;
    EXPECT_TRUE(bits_equal(memory.narrow(0, offset + 1001, behind), at::full({behind}, 7.0f)));
  }
}

// Parameters and gradients are reduced while autograd tracks them.
TEST_ON_RANKS(Reductions, IsInvisibleToAutograd) {
  const at::Tensor leaf = at::ones({100}).set_requires_grad(true);
  const auto version = leaf._version();
  comm_.all_reduce(leaf)->wait();
  EXPECT_EQ(leaf._version(), version);
  EXPECT_TRUE(leaf.is_leaf());
  EXPECT_TRUE(bits_equal(leaf, at::full({100}, float(size_))));
}

}  // namespace
}  // namespace ladder
