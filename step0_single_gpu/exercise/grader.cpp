#include "step0_single_gpu/exercise/grader.hpp"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "common/core/check.hpp"

namespace ladder::step0 {
namespace {

// A model of one parameter w = 1 whose summed loss on microbatch i is w · sums[i]. All that an
// accumulation can get wrong shows in the one gradient.
struct Scale {
  std::vector<float> sums;
  std::vector<std::int64_t> num_targets;
  at::Tensor w = at::ones({}).set_requires_grad(true);
  std::vector<float> gradient_at_forward = {};  // what .grad was when each forward ran

  Scale(std::vector<float> the_sums, std::vector<std::int64_t> targets)
      : sums(std::move(the_sums)), num_targets(std::move(targets)) {
    w.mutable_grad() = at::zeros({});
  }

  Microbatches batch() const {
    std::vector<Microbatch> list;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      list.push_back(
          {at::zeros({1, 1}, at::kLong).fill_(static_cast<std::int64_t>(i)), {}, num_targets[i]});
    }
    return Microbatches(std::move(list));
  }

  LossSum loss_sum() {
    return [this](const Microbatch& microbatch) {
      gradient_at_forward.push_back(gradient());
      return w * sums[static_cast<std::size_t>(microbatch.tokens.item<std::int64_t>())];
    };
  }

  float gradient() const { return w.grad().item<float>(); }
};

class Grade {
 public:
  explicit Grade(const AccumulateGradients& attempt) : attempt_(attempt) {}

  // Two microbatches of 30 and 10 targets with mean losses 1 and 3: 60/40, not (1 + 3)/2.
  void one_denominator() {
    Scale scale({30, 30}, {30, 10});
    expect("the loss of 30 targets with mean 1 and 10 with mean 3", run(scale, 40), 1.5);
    expect("its gradient", scale.gradient(), 1.5);
  }

  // The step has targets on other ranks as well: 40 here, 160 in all.
  void global_count() {
    Scale scale({30, 30}, {30, 10});
    expect("this rank's part of the loss when the step has 160 targets", run(scale, 160), 0.375);
    expect("its gradient", scale.gradient(), 0.375);
  }

  // In fp32 (1 + 1e8) - 1e8 is 0 and 1 + (1e8 - 1e8) is 1: the order of the fold shows in the sum.
  void fold_in_order() {
    Scale forward({1, 1e8F, -1e8F}, {1, 1, 1}), backward({-1e8F, 1e8F, 1}, {1, 1, 1});
    run(forward, 1);
    run(backward, 1);
    expect("the gradients 1, 1e8, -1e8 added in the order of the microbatches", forward.gradient(),
           0);
    expect("the gradients -1e8, 1e8, 1 added in the order of the microbatches", backward.gradient(),
           1);
  }

  // The activations of one microbatch are freed by its backward, before the next forward makes its
  // own.
  void one_microbatch_at_a_time() {
    Scale scale({1, 2, 4}, {1, 1, 1});
    run(scale, 1);
    if (scale.gradient_at_forward != std::vector<float>{0, 1, 3}) {
      faults_.emplace_back(
          "each microbatch needs its backward before the next one's forward, or all activations "
          "are alive at once");
    }
  }

  void adds_to_the_gradient() {
    Scale scale({2}, {4});
    scale.w.mutable_grad().fill_(10);
    run(scale, 4);
    expect("a gradient of 0.5 added to the 10 that .grad held", scale.gradient(), 10.5);
  }

  void padding_only() {
    Scale scale({0, 6}, {0, 3});
    expect("the loss when one microbatch is all padding", run(scale, 3), 2.0);
    Scale nothing({0}, {0});
    try {
      attempt_(nothing.loss_sum(), nothing.batch(), 0);
      faults_.emplace_back("a step without a single target has no mean loss: CheckError is wanted");
    } catch (const CheckError&) {
    }
  }

  std::vector<std::string> faults() { return std::move(faults_); }

 private:
  double run(Scale& scale, double num_targets) {
    return attempt_(scale.loss_sum(), scale.batch(), num_targets);
  }

  void expect(const std::string& what, double found, double wanted) {
    if (found != wanted) faults_.emplace_back(concat(what, " is ", wanted, ", not ", found));
  }

  const AccumulateGradients& attempt_;
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> grade(const AccumulateGradients& attempt) {
  Grade grade(attempt);
  grade.one_denominator();
  grade.global_count();
  grade.fold_in_order();
  grade.one_microbatch_at_a_time();
  grade.adds_to_the_gradient();
  grade.padding_only();
  return grade.faults();
}

}  // namespace ladder::step0
