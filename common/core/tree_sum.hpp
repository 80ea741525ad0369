// The order of every sum over ranks: a binary tree.
//
//   2 ranks   x0 + x1                      4 ranks   (x0 + x1) + (x2 + x3)
//   3 ranks   (x0 + x1) + x2               5 ranks   ((x0 + x1) + (x2 + x3)) + x4
//   6 ranks   ((x0 + x1) + (x2 + x3)) + (x4 + x5)
//
// N summands are split at the largest power of two below N, and each part in the same way. The
// literature calls such sums pairwise or cascade summation (Higham, "Accuracy and Stability of
// Numerical Algorithms", section 4.1).
//
// Floating-point addition is not associative, so "the sum over ranks" depends on the order. This
// one depends neither on which rank adds nor on how the elements are cut into slices, so the bits
// are the same everywhere. It starts with the values themselves, not with zero.
//
// Groups. Cut the ranks into groups of t neighbors, where the last group may be shorter; add up
// each group by the tree, and the groups' sums by the tree. If t is a power of two, that is the
// tree of all ranks, bit for bit: wherever the tree splits more than t ranks, it does so at a
// multiple of t. So ranks may first add up within a machine, or over shards, and then over machines
// or replicas. For any other t, and more than one group, it is another tree: six ranks in threes
// are ((x0 + x1) + x2) + ((x3 + x4) + x5).
#pragma once

#include <bit>
#include <utility>

namespace ladder {

// Where the tree splits `count` ≥ 2 summands: the largest power of two below count.
inline int tree_split(int count) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(count - 1)));
}

// The sum of leaf(begin) … leaf(end − 1), by add(left, right). Leaves are asked for in their order,
// each as late as possible: at any time at most log2(end − begin) sums wait for theirs.
template <class Leaf, class Add>
auto tree_sum(int begin, int end, const Leaf& leaf, const Add& add) -> decltype(leaf(begin)) {
  if (end - begin == 1) return leaf(begin);
  const int middle = begin + tree_split(end - begin);
  auto left = tree_sum(begin, middle, leaf, add);
  return add(std::move(left), tree_sum(middle, end, leaf, add));
}

}  // namespace ladder
