// Sequence parallelism: between the parts of one layer and those of the next, what all parts use is
// computed on rows, and each owner of parts has some of them (Korthikanti et al., arXiv 2205.05198).
//
//               forward                       backward
//   to_parts    all owners' rows              the sum of all owners' gradients, of the own rows
//   from_parts  the sum, of the own rows      all owners' rows
//
// That is branch_to_owners() and sum_of_owners(), whose all-reduce is cut in two: a sum that leaves
// each owner its rows, and a gathering of rows. Activations keep the shape [B, T/owners, C]: rows are
// tokens one after the other, B · T of them, wherever a sequence ends.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "common/core/check.hpp"
#include "common/model/parts.hpp"
#include "common/model/recipes.hpp"

namespace ladder {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct KeptParts : torch::CustomClassHolder {
  KeptParts(Parts the_parts, Meanwhile what)
      : parts(std::move(the_parts)), meanwhile(std::move(what)) {}
  Parts parts;
  Meanwhile meanwhile;
};

void keep(AutogradContext* context, const Parts& parts, const Meanwhile& meanwhile = nullptr) {
  context->saved_data["kept"] =
      c10::IValue::make_capsule(c10::make_intrusive<KeptParts>(parts, meanwhile));
}

const KeptParts& kept(AutogradContext* context) {
  return static_cast<const KeptParts&>(*context->saved_data["kept"].toCapsule());
}

// [B, T/owners, C] of each owner -> [B, T, C], and back.
at::Tensor gathered(const at::Tensor& own, const Parts& parts) {
  const at::Tensor all = parts.gather_rows(own.contiguous().view({-1, own.size(-1)}));
  return all.view({own.size(0), own.size(1) * parts.num_owners(), own.size(2)});
}

at::Tensor scattered(const at::Tensor& all, const Parts& parts,
                     const Meanwhile& meanwhile = nullptr) {
  const at::Tensor own =
      at::empty({all.size(0), all.size(1) / parts.num_owners(), all.size(2)}, all.options());
  const at::Tensor summands = all.contiguous();  // lives until the sum is there
  const Parts::Wait wait = parts.start_sum_of_rows(summands.flatten(0, 1), own.flatten(0, 1));
  if (meanwhile) meanwhile->run(call_gradient_hook);
  wait();
  return own;
}

struct ToParts : torch::autograd::Function<ToParts> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Parts& parts,
                            const Meanwhile& meanwhile);
  static variable_list backward(AutogradContext* context, const variable_list& gradients);
};

at::Tensor ToParts::forward(AutogradContext* context, const at::Tensor& x, const Parts& parts,
                            const Meanwhile& meanwhile) {
  keep(context, parts, meanwhile);
  return gathered(x, parts);
}

variable_list ToParts::backward(AutogradContext* context, const variable_list& gradients) {
  const KeptParts& forward = kept(context);
  return {scattered(gradients[0], forward.parts, forward.meanwhile), {}, {}};
}

struct FromParts : torch::autograd::Function<FromParts> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& own, const Parts& parts);
  static variable_list backward(AutogradContext* context, const variable_list& gradients);
};

at::Tensor FromParts::forward(AutogradContext* context, const at::Tensor& own, const Parts& parts) {
  keep(context, parts);
  return scattered(own, parts);
}

variable_list FromParts::backward(AutogradContext* context, const variable_list& gradients) {
  return {gathered(gradients[0], kept(context).parts), {}};
}

// What every owner uses, in rows of its own.
void share(std::vector<at::Tensor>& weights, const Parts& parts) {
  for (at::Tensor& weight : weights) weight = branch_to_owners(weight, parts);
}

// Where this owner's rows begin, of all owners', if each has so many.
std::int64_t first_row(const Parts& parts, std::int64_t num_rows) {
  return parts.first / parts.own * num_rows;
}

// Pieces begin … end − 1 of the rows that are here, which share the weights by branches of the tree.
void act_on(int begin, int end, const std::vector<at::Tensor>& pieces,
            const std::vector<at::Tensor>& weights, const ActOnRows& act, std::int64_t first_row,
            std::vector<at::Tensor>& results) {
  if (end - begin == 1) {
    results.push_back(act(pieces[static_cast<std::size_t>(begin)], weights, first_row));
    return;
  }
  std::vector<at::Tensor> left, right;
  for (const at::Tensor& weight : weights) {
    auto [one, other] = branch(weight);
    left.push_back(std::move(one));
    right.push_back(std::move(other));
  }
  const int middle = begin + tree_split(end - begin);
  act_on(begin, middle, pieces, left, act, first_row, results);
  for (int piece = begin; piece < middle; ++piece)
    first_row += pieces[static_cast<std::size_t>(piece)].size(0);
  act_on(middle, end, pieces, right, act, first_row, results);
}

}  // namespace

Meanwhile to_compute_meanwhile(const Parts& parts, const at::Tensor& x) {
  const bool is_wanted =
      parts.start_sum && x.requires_grad() && DeferWeightGradients::current() == nullptr;
  return is_wanted ? std::make_shared<WeightGradientQueue>() : nullptr;
}

at::Tensor to_parts(const at::Tensor& x, const Parts& parts, const Meanwhile& meanwhile) {
  return parts.gather_rows ? ToParts::apply(x, parts, meanwhile)
                           : branch_to_owners(x, parts, meanwhile);
}

at::Tensor from_parts(const at::Tensor& own, const Parts& parts) {
  return parts.gather_rows ? FromParts::apply(own, parts) : sum_of_owners(own, parts);
}

at::Tensor over_rows(const Parts& parts, const at::Tensor& x, std::vector<at::Tensor> weights,
                     const ActOnRows& act) {
  if (parts.total == 1) return act(x, weights, 0);
  const Recipe recipe = {{x}, [=](const std::vector<at::Tensor>& from) {
                           return over_rows(parts, from[0], weights, act);
                         }};
  const bool are_cut = static_cast<bool>(parts.gather_rows);
  if (are_cut) share(weights, parts);
  const int count = are_cut ? parts.own : parts.total;  // of pieces that are here
  const at::Tensor flat = x.flatten(0, -2);
  const std::int64_t first = are_cut ? first_row(parts, flat.size(0)) : 0;
  std::vector<std::int64_t> lengths;
  for (int piece = 0; piece < count; ++piece)
    lengths.push_back(part_begin(flat.size(0), piece + 1, count) -
                      part_begin(flat.size(0), piece, count));
  std::vector<at::Tensor> results;
  act_on(0, count, flat.split_with_sizes(lengths), weights, act, first, results);
  return noted(count == 1 ? results[0].view_as(x) : at::cat(results).view_as(x), recipe);
}

}  // namespace ladder
