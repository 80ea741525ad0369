#include "common/core/tree_sum.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/comm/contract/rank_values.hpp"
#include "common/comm/tree_fold.hpp"
#include "common/testing/closeness.hpp"

namespace ladder {
namespace {

std::string text_of_tree(int count) {
  const auto name = [](int r) { return std::string(1, static_cast<char>('a' + r)); };
  const auto add = [](const std::string& left, const std::string& right) {
    return "(" + left + right + ")";
  };
  return tree_sum(0, count, name, add);
}

TEST(TreeSum, SplitsAtTheLargestPowerOfTwo) {
  const std::vector<std::string> wanted = {"a",
                                           "(ab)",
                                           "((ab)c)",
                                           "((ab)(cd))",
                                           "(((ab)(cd))e)",
                                           "(((ab)(cd))(ef))",
                                           "(((ab)(cd))((ef)g))",
                                           "(((ab)(cd))((ef)(gh)))",
                                           "((((ab)(cd))((ef)(gh)))i)"};
  for (int count = 1; count <= std::ssize(wanted); ++count)
    EXPECT_EQ(text_of_tree(count), wanted[static_cast<std::size_t>(count - 1)]);
}

at::Tensor fold_copies(const std::vector<at::Tensor>& pieces) {
  std::vector<at::Tensor> copies;
  std::vector<std::byte*> data;
  for (const at::Tensor& piece : pieces) {
    copies.push_back(piece.clone());
    data.push_back(data_of(copies.back()));
  }
  const at::Tensor sum = at::empty_like(pieces[0]);
  tree_fold(data, /*own=*/0, data_of(sum), sum.scalar_type(), sum.numel());
  return sum;
}

at::Tensor fold_by_groups(const std::vector<at::Tensor>& pieces, int num_in_group) {
  std::vector<at::Tensor> sums;
  for (auto begin = pieces.begin(); begin != pieces.end();) {
    const auto end = begin + std::min<std::ptrdiff_t>(num_in_group, pieces.end() - begin);
    sums.push_back(fold_copies({begin, end}));
    begin = end;
  }
  return fold_copies(sums);
}

// Groups of neighbors have the bits of the whole if, and only if, their size is a power of two, or
// there is only one; the last may be shorter. Enough elements that no other tree has the same bits.
TEST(TreeSum, GroupsOfAPowerOfTwoHaveTheBitsOfTheWhole) {
  constexpr std::int64_t kElements = 64;
  std::vector<at::Tensor> pieces;
  for (int num_ranks = 1; num_ranks <= 64; ++num_ranks) {
    pieces.push_back(values_of(num_ranks - 1, kElements, at::kFloat));
    const at::Tensor whole = fold_copies(pieces);
    EXPECT_TRUE(bits_equal(whole, fold_of_all(num_ranks, kElements, at::kFloat)));
    for (int in_group = 1; in_group <= num_ranks; ++in_group) {
      const bool is_power = (in_group & (in_group - 1)) == 0;
      EXPECT_EQ(fold_by_groups(pieces, in_group).equal(whole), is_power || in_group == num_ranks)
          << num_ranks << " ranks in groups of " << in_group;
    }
  }
}

// Wherever the own piece and the target are; several blocks, of which the last is short.
TEST(TreeFold, KeepsTheOwnPieceUnlessItIsTheTarget) {
  for (const std::int64_t numel : {5, 300001}) {
    std::vector<at::Tensor> values;
    for (int num_ranks = 1; num_ranks <= 7; ++num_ranks) {
      values.push_back(values_of(num_ranks - 1, numel, at::kFloat));
      const auto of_rank = [&](int rank) { return values[static_cast<std::size_t>(rank)]; };
      const at::Tensor wanted = wanted_tree(0, num_ranks, of_rank);
      for (int own = 0; own < num_ranks; ++own) {
        for (const bool is_in_place : {false, true}) {
          SCOPED_TRACE(::testing::Message() << num_ranks << " ranks, own " << own << ", " << numel);
          std::vector<at::Tensor> pieces;
          std::vector<std::byte*> data;
          for (const at::Tensor& of_one : values) {
            pieces.push_back(of_one.clone());
            data.push_back(data_of(pieces.back()));
          }
          const at::Tensor& own_piece = pieces[static_cast<std::size_t>(own)];
          const at::Tensor target = is_in_place ? own_piece : at::empty({numel});
          tree_fold(data, own, data_of(target), at::kFloat, numel);
          EXPECT_TRUE(bits_equal(target, wanted));
          EXPECT_TRUE(is_in_place || bits_equal(own_piece, of_rank(own)));
        }
      }
    }
  }
}

}  // namespace
}  // namespace ladder
