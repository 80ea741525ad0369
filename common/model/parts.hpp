// A layer that is cut into parts: heads of attention, channels of an MLP, rows of a vocabulary.
//
//   x ── branch ──> part 0 ──┐
//          │                 sum ──> y          part p: a product by columns, what is elementwise
//          └──────> part 1 ──┘                  or a head's own, a product by rows
//
// Each part has its own columns of the first matrix and its own rows of the second one, so no part
// needs anything of another one until the end, where their partial products are added:
//
//             forward                        backward
//   branch    passes x to both               adds up the gradients
//   sum       adds up the partial products   passes the gradient to both
//
// (Megatron-LM's f and g, Shoeybi et al., arXiv 1909.08053.) Of more parts, the branches have
// branches of their own, by the tree of tree_sum.hpp over all parts. So the bits depend on how many
// parts there are, not on who computes which: one process computes all, and neighboring ranks that
// own equally many, a power of two, add up their own and then each other's (Zhang et al., arXiv
// 2511.17826). Of P parts, the partial products of log2 P wait at a time, and as many gradients.
//
// One part is the layer itself: nothing branches, and nothing is added.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "common/core/tree_sum.hpp"
#include "common/model/part_plan.hpp"
#include "common/model/weight_gradients.hpp"

namespace ladder {

// x for two branches. No copy is made, and what has a recipe (recipes.hpp) has it in both.
std::pair<at::Tensor, at::Tensor> branch(const at::Tensor& x);

// What backward can compute while the gradients of x are added up by their owners: those of the
// weights behind x, which nobody waits for. Null: nothing.
using Meanwhile = std::shared_ptr<WeightGradientQueue>;

// The branches and sums among owners of parts: x as it is, whose gradient all of them add up; and
// the sum of what all of them have. Neither changes what it is given, or keeps it for backward.
// Without other owners, each returns the very tensor that it is given.
at::Tensor branch_to_owners(const at::Tensor& x, const Parts& parts,
                            const Meanwhile& meanwhile = nullptr);
at::Tensor sum_of_owners(const at::Tensor& own, const Parts& parts);

// part(i, x) of parts begin … end − 1, joined by the tree: join(of earlier parts, of later ones).
template <class Part, class Join>
auto over_parts(int begin, int end, const at::Tensor& x, const Part& part, const Join& join)
    -> decltype(part(begin, x)) {
  if (end - begin == 1) return part(begin, x);
  const int middle = begin + tree_split(end - begin);
  const auto [left, right] = branch(x);
  auto first = over_parts(begin, middle, left, part, join);
  return join(std::move(first), over_parts(middle, end, right, part, join));
}

// x for all parts, and the sum of what they make of it: of all rows, or of this owner's.
at::Tensor to_parts(const at::Tensor& x, const Parts& parts, const Meanwhile& meanwhile = nullptr);
at::Tensor from_parts(const at::Tensor& own, const Parts& parts);

// A queue for the weights' gradients, if there is a sum over owners to fill in x's backward, and no
// other queue in scope that keeps them for later.
Meanwhile to_compute_meanwhile(const Parts& parts, const at::Tensor& x);

// The sum of part(i, x) over all parts, of which this process has the i-th of its own.
template <class Part>
at::Tensor sum_of_parts(const Parts& parts, const at::Tensor& x, const Part& part) {
  const Meanwhile meanwhile = to_compute_meanwhile(parts, x);
  const DeferWeightGradients scope(meanwhile ? meanwhile.get() : DeferWeightGradients::current());
  const at::Tensor z = to_parts(x, parts, meanwhile);
  return from_parts(over_parts(0, parts.own, z, part, std::plus<at::Tensor>()), parts);
}

// What all parts use, `weights`, in rows x [..., C]: act() of each of `total` pieces of all owners'
// rows, one after the other, which begin at row `first` of them. So the gradients of the weights,
// which are sums over rows, are added up by the tree as well, whoever has which rows.
using ActOnRows = std::function<at::Tensor(
    const at::Tensor& rows, const std::vector<at::Tensor>& weights, std::int64_t first)>;
at::Tensor over_rows(const Parts& parts, const at::Tensor& x, std::vector<at::Tensor> weights,
                     const ActOnRows& act);

// A module that all parts use.
template <class Module>
struct InRows {
  Module module;
  Parts parts;

  at::Tensor operator()(const at::Tensor& x) const {
    return over_rows(parts, x, module.weights(),
                     [module = module](const at::Tensor& rows, const auto& weights, auto) {
                       return module.with(weights)(rows);
                     });
  }
};

// The same for modules, one for each of this process's parts. A bias is added once, to the sum.
template <class Module>
struct InParts {
  std::vector<Module> own;
  at::Tensor bias;  // undefined: there is none, or a single part adds it
  Parts parts;

  at::Tensor operator()(const at::Tensor& x) const {
    const at::Tensor y = sum_of_parts(
        parts, x, [&](int i, const at::Tensor& z) { return own[static_cast<std::size_t>(i)](z); });
    if (!bias.defined()) return y;
    return over_rows(parts, y, {bias}, [](const at::Tensor& rows, const auto& weights, auto) {
      return rows + weights[0];
    });
  }
};

}  // namespace ladder
