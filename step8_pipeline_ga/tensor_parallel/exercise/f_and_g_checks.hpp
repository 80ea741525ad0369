// For the judge, level 1: what autograd makes of branches and sums, without a model. One owner of
// two is here, and the judge plays the other; then each rank is one.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/core/memory_ledger.hpp"
#include "common/core/tree_sum.hpp"
#include "common/model/model.hpp"
#include "common/model/parts.hpp"
#include "common/model/recipes.hpp"
#include "common/model/weight_gradients.hpp"
#include "common/testing/examination.hpp"

namespace ladder::tensor_parallel {

// The same for the same seed.
inline at::Tensor numbers(at::IntArrayRef shape, std::int64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(static_cast<std::uint64_t>(seed)));
}

// One of two owners; `others` is what the other one has.
class HalfOwner {
 public:
  explicit HalfOwner(at::Tensor others) : others_(std::move(others)) {}
  Parts parts() {
    return {.total = 2,
            .first = 0,
            .own = 1,
            .start_sum = [this](const at::Tensor& values) -> Parts::Wait {
              ++num_sums_;
              check(
                  values.is_contiguous(),
                  "start_sum() gets a tensor that is not contiguous: ranks send memory as it lies");
              is_traveling_ = true;
              return [this, values] {
                is_traveling_ = false;
                at::Tensor(values).add_(others_);
              };
            }};
  }
  int take_num_sums() { return std::exchange(num_sums_, 0); }
  bool is_traveling() const { return is_traveling_; }

 private:
  at::Tensor others_;
  int num_sums_ = 0;
  bool is_traveling_ = false;
};

class FAndGChecks : public Examination {
 public:
  FAndGChecks(Communicator& comm, std::int64_t rows, std::int64_t channels)
      : Examination(comm), shape_{rows, channels} {
    say_only_first();
  }

  void judge(const std::string& where) {
    begin_faults_with(where);
    examine_next(where + "branch()", &FAndGChecks::branches_add_up_gradients);
    examine_next(where + "f, branch_to_owners()", &FAndGChecks::f_adds_up_in_backward);
    examine_next(where + "f, and weights", &FAndGChecks::f_computes_meanwhile);
    examine_next(where + "g, sum_of_owners()", &FAndGChecks::g_adds_up_in_forward);
    examine_next(where + "alone", &FAndGChecks::one_owner_asks_nobody);
    examine_next(where + "all parts in one process", [&](Communicator&) {
      adds_up_by_the_tree({2, 3, 4, 6}, {});
    });
    examine_next(where + "a part or two on each rank", [&](LockstepCommunicator& comm) {
      const auto start_sum = [&](const at::Tensor& values) -> Parts::Wait {
        return [sum = std::shared_ptr(comm.all_reduce(values))] { sum->wait(); };
      };
      adds_up_by_the_tree({comm.size(), 2 * comm.size()}, start_sum);
      const std::size_t num_wanted = comm.size() > 1 ? 4 : 0;
      expect("the number of sums in two forwards and backwards", comm.calls().size(), num_wanted);
    });
    begin_faults_with("");
  }

  void branches_add_up_gradients() {
    prefix_ = "branch(): ";
    const at::Tensor x = numbers(shape_, 1).set_requires_grad(true);
    const auto [left, right] = branch(x);
    expect_same_memory(left, x);
    expect_same_memory(right, x);
    const at::Tensor of_left = numbers(shape_, 2), of_right = numbers(shape_, 3);
    (left * of_left + right * of_right).sum().backward();
    expect("the gradient of x", x.grad(), of_left + of_right);
    const auto [one, other] = branch(x);
    const at::Tensor dy = numbers(shape_, 9), before = dy.clone();
    (one + other).backward(dy);  // both branches have this very gradient
    expect("the gradient that autograd has passed, and others may use,", dy, before);
    const Recipe recipe = {{x}, [](const std::vector<at::Tensor>& from) { return from[0] * 2; }};
    const Layer cheap = {{}, [&](const at::Tensor& input) {
                           const auto both = branch(noted(input * 2, recipe));
                           if (!recipe_of(both.first) || !recipe_of(both.second))
                             fault("what has a recipe (recipes.hpp) has none in a branch");
                           return both.first + both.second;
                         }};
    with_recipes(cheap)(x);
  }

  void f_adds_up_in_backward() {
    prefix_ = "f, branch_to_owners(): ";
    const at::Tensor of_others = numbers(shape_, 4);
    HalfOwner owner(of_others);
    for (const bool is_transposed : {false, true}) {  // as a product may leave a gradient
      const at::Tensor x = numbers(shape_, 1).set_requires_grad(true);
      const at::Tensor y = branch_to_owners(x, owner.parts());
      expect("the number of sums in forward, whose input all owners have,", owner.take_num_sums(),
             0);
      expect_same_memory(y, x);
      const at::Tensor dy = laid_out(is_transposed, 5), before = dy.clone();
      y.backward(dy);
      expect("the number of sums in backward", owner.take_num_sums(), 1);
      expect("the gradient of x", x.grad(), before + of_others);
      expect("the gradient that autograd has passed, and others may use,", dy, before);
      branch_to_owners(x.detach(), owner.parts());
      const at::NoGradGuard evaluation;
      branch_to_owners(x, owner.parts());
      expect("the number of sums where nothing needs a gradient", owner.take_num_sums(), 0);
    }
  }

  // A gradient of a weight that nobody waits for is added, and those who wait for it are told.
  void f_computes_meanwhile() {
    prefix_ = "f, branch_to_owners(): ";
    HalfOwner owner(numbers(shape_, 4));
    const at::Tensor weight = numbers({3}, 2).set_requires_grad(true), gradient = numbers({3}, 3);
    int num_meanwhile = 0, num_hooks = 0;
    torch::autograd::impl::set_post_acc_grad_hooks(weight, std::make_unique<Hook>(num_hooks));
    const Meanwhile meanwhile = std::make_shared<WeightGradientQueue>();
    const at::Tensor x = numbers(shape_, 1).set_requires_grad(true), dy = numbers(shape_, 5);
    const at::Tensor y = branch_to_owners(x, owner.parts(), meanwhile);
    meanwhile->push({weight, [&] {
                       num_meanwhile += owner.is_traveling() ? 1 : 0;
                       return gradient;
                     }});
    y.backward(dy);
    expect("the number of gradients computed while the sum travels", num_meanwhile, 1);
    expect("the number of hooks called", num_hooks, 1);
    expect("the gradient of the weight", weight.grad(), gradient);
    expect("the gradient of x", x.grad(), dy + numbers(shape_, 4));
  }

  void g_adds_up_in_forward() {
    prefix_ = "g, sum_of_owners(): ";
    const at::Tensor of_others = numbers(shape_, 6), dy = numbers(shape_, 8);
    HalfOwner owner(of_others);
    for (const bool is_transposed : {false, true}) {
      const at::Tensor leaf = laid_out(is_transposed, 7).set_requires_grad(true);
      const at::Tensor own = leaf.view_as(leaf), before = own.detach().clone();
      const std::int64_t held = activation_bytes();
      const at::Tensor y = sum_of_owners(own, owner.parts());
      const std::int64_t kept = activation_bytes() - held;
      expect("the number of sums in forward", owner.take_num_sums(), 1);
      expect("what it returns", y.detach(), before + of_others);
      expect("its input, of which backward may need what it was,", own.detach(), before);
      expect("the number of bytes kept, of which the sum is all,", kept,
             static_cast<std::int64_t>(y.nbytes()));
      y.backward(dy);
      expect("the number of sums in backward, whose gradient all owners have,",
             owner.take_num_sums(), 0);
      expect("the gradient of its input", leaf.grad(), dy);
      const at::NoGradGuard evaluation;
      expect("in an evaluation, what it returns", sum_of_owners(own, owner.parts()),
             before + of_others);
      const at::Tensor narrow = before.to(at::kBFloat16);
      expect("in bf16, what it returns", sum_of_owners(narrow, owner.parts()),
             narrow.clone().add_(of_others));
      owner.take_num_sums();
    }
  }

  void one_owner_asks_nobody() {
    const at::Tensor x = numbers(shape_, 1).set_requires_grad(true);
    if (!branch_to_owners(x, all_parts(2)).is_same(x) || !sum_of_owners(x, all_parts(2)).is_same(x))
      fault("without start_sum, f or g returns another tensor than it was given");
  }

  // start_sum: over all ranks, if each has some of the parts.
  void adds_up_by_the_tree(const std::vector<int>& totals,
                           const std::function<Parts::Wait(const at::Tensor&)>& start_sum) {
    for (const int total : totals) {
      const int own = start_sum ? total / comm_.size() : total;
      const bool is_alone = own == total;
      const Parts parts = {.total = total,
                           .first = is_alone ? 0 : own * comm_.rank(),
                           .own = own,
                           .start_sum = is_alone ? nullptr : start_sum};
      prefix_ = is_alone ? concat(total, " parts: ")
                         : concat(total, " parts, ", own, " on each of ", comm_.size(), " ranks: ");
      const auto factor = [&](int part) { return numbers(shape_, 10 + part) * (part + 1); };
      const at::Tensor x = numbers(shape_, 1).set_requires_grad(true), dy = numbers(shape_, 2);
      const at::Tensor y = sum_of_parts(
          parts, x, [&](int i, const at::Tensor& z) { return z * factor(parts.first + i); });
      y.backward(dy);
      const auto by_tree = [&](const at::Tensor& times) {
        return tree_sum(
            0, total, [&](int part) { return times * factor(part); }, std::plus<at::Tensor>());
      };
      expect("the sum of all parts' products", y.detach(), by_tree(x.detach()));
      expect("the sum of the gradients of all parts", x.grad(), by_tree(dy));
    }
  }

 private:
  at::Tensor laid_out(bool is_transposed, std::int64_t seed) const {
    return is_transposed ? numbers({shape_[1], shape_[0]}, seed).t() : numbers(shape_, seed);
  }
  struct Hook final : torch::autograd::PostAccumulateGradHook {
    explicit Hook(int& calls) : num_calls(calls) {}
    void operator()(const at::Tensor& /*parameter*/) override { ++num_calls; }
    int& num_calls;
  };
  static std::int64_t activation_bytes() {
    return read_memory().live(MemoryCategory::kActivations);
  }
  void expect_same_memory(const at::Tensor& found, const at::Tensor& x) {
    expect("what it returns", found.detach(), x.detach());
    if (found.const_data_ptr() != x.const_data_ptr()) fault("it returns a copy of x");
    if (!found.requires_grad()) fault("what it returns needs no gradient");
  }

  std::vector<std::int64_t> shape_;
};

}  // namespace ladder::tensor_parallel
