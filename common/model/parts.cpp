#include "common/model/parts.hpp"

#include <torch/csrc/autograd/custom_function.h>

#include "common/model/recipes.hpp"

namespace ladder {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor summed(const at::Tensor& own, const Parts& parts, const Meanwhile& meanwhile = nullptr) {
  const at::Tensor sum = own.clone(at::MemoryFormat::Contiguous);  // own is not ours to change
  const Parts::Wait wait = parts.start_sum(sum);
  if (meanwhile) meanwhile->run(call_gradient_hook);
  wait();
  return sum;
}

// Two branches of one tensor.
struct Branches : torch::autograd::Function<Branches> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x);
  static variable_list backward(AutogradContext* context, const variable_list& gradients);
};

variable_list Branches::forward(AutogradContext* /*context*/, const at::Tensor& x) {
  return {x.detach(), x.detach()};
}

variable_list Branches::backward(AutogradContext* /*context*/, const variable_list& gradients) {
  return {gradients[0] + gradients[1]};
}

// f. What backward needs to know of the parts, forward keeps in the context.
struct BranchToOwners : torch::autograd::Function<BranchToOwners> {
  struct Kept : torch::CustomClassHolder {
    Kept(Parts the_parts, Meanwhile what)
        : parts(std::move(the_parts)), meanwhile(std::move(what)) {}
    Parts parts;
    Meanwhile meanwhile;
  };
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Parts& parts,
                            const Meanwhile& meanwhile);
  static variable_list backward(AutogradContext* context, const variable_list& gradients);
};

at::Tensor BranchToOwners::forward(AutogradContext* context, const at::Tensor& x,
                                   const Parts& parts, const Meanwhile& meanwhile) {
  context->saved_data["kept"] =
      c10::IValue::make_capsule(c10::make_intrusive<Kept>(parts, meanwhile));
  return x.detach();
}

variable_list BranchToOwners::backward(AutogradContext* context, const variable_list& gradients) {
  const auto kept =
      c10::static_intrusive_pointer_cast<Kept>(context->saved_data["kept"].toCapsule());
  return {summed(gradients[0], kept->parts, kept->meanwhile), {}, {}};
}

// g
struct SumOfOwners : torch::autograd::Function<SumOfOwners> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& own, const Parts& parts);
  static variable_list backward(AutogradContext* context, const variable_list& gradients);
};

at::Tensor SumOfOwners::forward(AutogradContext* /*context*/, const at::Tensor& own,
                                const Parts& parts) {
  return summed(own, parts);
}

variable_list SumOfOwners::backward(AutogradContext* /*context*/, const variable_list& gradients) {
  return {gradients[0], {}};
}

// What is made as x is.
at::Tensor made_as(const at::Tensor& x, const at::Tensor& same) {
  const Recipe* const recipe = recipe_of(x);
  return recipe != nullptr ? noted(same, Recipe(*recipe)) : same;
}

}  // namespace

std::pair<at::Tensor, at::Tensor> branch(const at::Tensor& x) {
  const variable_list both = Branches::apply(x);
  return {made_as(x, both[0]), made_as(x, both[1])};
}

at::Tensor branch_to_owners(const at::Tensor& x, const Parts& parts, const Meanwhile& meanwhile) {
  return parts.start_sum ? made_as(x, BranchToOwners::apply(x, parts, meanwhile)) : x;
}

at::Tensor sum_of_owners(const at::Tensor& own, const Parts& parts) {
  return parts.start_sum ? SumOfOwners::apply(own, parts) : own;
}

}  // namespace ladder
