// Judges accumulate_gradients() on a model of one parameter: the oracle itself trains with it.
#include "step0_single_gpu/accumulate_gradients.hpp"

#include <ATen/core/TensorBody.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/testing/closeness.hpp"
#include "common/testing/draw.hpp"
#include "common/testing/examination.hpp"
#include "common/testing/judge_main.hpp"

namespace ladder {
namespace {

// A model of one parameter w = 1 whose summed loss on microbatch i is w · sums[i]. All that an
// accumulation can get wrong shows in the one gradient.
class Scale {
 public:
  Scale(std::vector<float> sums, std::vector<std::int64_t> num_targets)
      : sums_(std::move(sums)), num_targets_(std::move(num_targets)) {
    w_.mutable_grad() = gradient_;
    w_.register_hook([this](const at::Tensor& /*gradient*/) {  // backward has used the activation
      has_kept_graph_ = has_kept_graph_ || !activations_.back().expired();
    });
  }

  Microbatches batch() const {
    std::vector<Microbatch> list;
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      list.push_back(
          {at::zeros({1, 1}, at::kLong).fill_(static_cast<std::int64_t>(i)), {}, num_targets_[i]});
    }
    return Microbatches(std::move(list));
  }

  // Autograd keeps the tensor that w is multiplied by until backward has used it: an activation.
  LossSum loss_sum() {
    return [this](const Microbatch& microbatch) {
      ++num_forwards_;
      std::erase_if(activations_, [](const auto& activation) { return activation.expired(); });
      most_kept_ = std::max(most_kept_, activations_.size());
      const at::Tensor activation =
          at::full({}, sums_[static_cast<std::size_t>(microbatch.tokens.item<std::int64_t>())]);
      activations_.emplace_back(activation.getIntrusivePtr());
      const at::Tensor loss = w_ * activation;
      loss.register_hook([this](const at::Tensor& /*gradient*/) { ++num_backwards_; });
      return loss;
    };
  }

  int num_forwards() const { return num_forwards_; }
  int num_backwards() const { return num_backwards_; }
  // The value in the buffer that .grad is a view of in a trainer.
  double gradient() const { return gradient_.item<double>(); }
  bool has_its_gradient() const { return w_.grad().is_same(gradient_); }
  void set_gradient(double value) { gradient_.fill_(value); }
  bool has_kept_graph() const { return has_kept_graph_; }
  bool has_activations() const {
    return std::any_of(activations_.begin(), activations_.end(),
                       [](const auto& activation) { return !activation.expired(); });
  }
  // How many earlier microbatches' activations were alive when a forward ran, at the most.
  std::size_t most_kept() const { return most_kept_; }

 private:
  std::vector<float> sums_;
  std::vector<std::int64_t> num_targets_;
  at::Tensor gradient_ = at::zeros({});
  at::Tensor w_ = at::ones({}).set_requires_grad(true);
  std::vector<c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>> activations_;
  std::size_t most_kept_ = 0;
  int num_forwards_ = 0, num_backwards_ = 0;
  bool has_kept_graph_ = false;
};

// What a step is made of, by microbatch, and by all.
struct Step {
  std::vector<float> sums;                // of losses
  std::vector<std::int64_t> num_targets;  // 0: padding
  double num_targets_of_all;
  float held;  // by .grad before it
};

// What the first microbatches of a step add up to: each has its backward, and no other microbatch is
// near.
struct Sums {
  double loss = 0;
  float gradient;
};
Sums sums_of(const Step& step) {
  Sums sums = {.gradient = step.held};
  for (const float sum : step.sums) {
    const at::Tensor w = at::ones({}).set_requires_grad(true);
    const at::Tensor share = w * at::full({}, sum) / step.num_targets_of_all;
    share.backward();
    sums.loss += share.item<double>();
    sums.gradient += w.grad().item<float>();
  }
  return sums;
}

Step any_step(std::int64_t num_microbatches, Draw& draw) {
  Step step;
  double own_targets = 0;
  for (std::int64_t i = 0; i < num_microbatches; ++i) {
    step.num_targets.push_back(std::max<std::int64_t>(0, draw.number(-3, 9)));
    const bool is_padding = step.num_targets.back() == 0;
    const auto whole = static_cast<float>(is_padding ? 0 : draw.number(-999, 999));
    step.sums.push_back(std::ldexp(whole, static_cast<int>(draw.number(-9, 9))));
    own_targets += static_cast<double>(step.num_targets.back());
  }
  step.num_targets_of_all = own_targets + static_cast<double>(draw.number(1, 1000));
  step.held = static_cast<float>(draw.number(-50, 50));
  return step;
}

class Checks : public Examination {
 public:
  using Examination::Examination;

  // Some are padding, and losses have either sign, as those of DPO's objectives may. Asks for one
  // microbatch more each time, so that the first one that is not added as it should be is named.
  void adds_up_many(const Step& step) {
    for (std::size_t count = 1; count <= step.sums.size(); ++count) {
      Step first = step;
      first.sums.resize(count);
      first.num_targets.resize(count);
      const std::string fault_of_first = wrong_in(first);
      if (fault_of_first.empty()) continue;
      return fault(concat("the first ", count, " of ", step.sums.size(),
                          " microbatches, whose last ", "has a summed loss of ",
                          digits(step.sums[count - 1]), ", with ", step.held,
                          " in .grad before: ", fault_of_first));
    }
  }

  // Two microbatches of 30 and 10 targets with mean losses 1 and 3: 60/40, not (1 + 3)/2.
  void one_denominator() {
    Scale scale({30, 30}, {30, 10});
    expect("the loss of 30 targets with mean 1 and 10 with mean 3", run(scale, 40), 1.5);
    expect("the gradient of 30 targets with mean 1 and 10 with mean 3", scale.gradient(), 1.5);
  }

  // The gradient is divided by the count itself: its reciprocal, means over microbatches, or a
  // count in 16 or 32 bits have other bits.
  void divides_once() {
    for (const double n : {49.0, 2049.0, 5e9 + 1}) {
      examine("a division", [&](Communicator&) {
        double found = 0, wanted = 0;
        int sum = 0;
        while (found == wanted && sum < 20) {
          const auto sum_of_7 = static_cast<float>(++sum);
          Scale scale({sum_of_7}, {7});
          found = run(scale, n);
          wanted = (at::full({}, sum_of_7) / n).item<double>();
        }
        if (found != wanted) {
          const bool is_close = std::abs(found / wanted - 1) < 0.01;
          fault(concat("the loss of a summed loss of ", sum, " in a step of ", digits(n),
                       " targets is ", digits(found), ", not ", digits(wanted),
                       is_close ? ": divide the tensor by the count, before its backward, and add "
                                  "up the quotients"
                                : ""));
        }
      });
    }
  }

  // The step has targets on other ranks as well: 40 here, 160 in all.
  void global_count() {
    Scale scale({30, 30}, {30, 10});
    expect("this rank's part of the loss when the step has 160 targets", run(scale, 160), 0.375);
    expect("this rank's gradient when the step has 160 targets", scale.gradient(), 0.375);
  }

  // In fp32 (1 + 1e8) - 1e8 is 0 and 1 + (1e8 - 1e8) is 1: the order of the fold shows in the sum.
  void fold_in_order() {
    Scale forward({4, 4e8F, -4e8F}, {2, 1, 1}), backward({-4e8F, 4e8F, 4}, {2, 1, 1});
    run(forward, 4);
    run(backward, 4);
    expect("the gradient 1 + 1e8 - 1e8, in the order of the microbatches,", forward.gradient(),
           0.0);
    expect("the gradient -1e8 + 1e8 + 1, in the order of the microbatches,", backward.gradient(),
           1.0);
  }

  void adds_the_loss_in_double() {
    Scale scale({2, 0x1p-29F}, {1, 1});
    expect("the loss 1 + 2^-30, of which fp32 sees only the 1,", run(scale, 2), 1 + 0x1p-30);
  }

  // The activations of one microbatch are freed by its backward, before the next forward makes its
  // own.
  void one_microbatch_at_a_time() {
    Scale scale({1, 2, 1}, {2, 1, 1});
    run(scale, 4);
    if (scale.most_kept() > 0) {
      fault(concat("a forward runs while the activations of ", scale.most_kept(),
                   " earlier microbatches are alive; each microbatch needs its backward, and its "
                   "graph freed, before the next forward"));
    }
    if (scale.has_kept_graph())
      fault("a backward keeps what it has used of its graph, and so all activations at once");
    if (scale.has_activations()) fault("activations are alive after the last microbatch");
  }

  void adds_to_the_gradient() {
    Scale scale({2, 2}, {2, 2});
    scale.set_gradient(10);
    run(scale, 4);
    expect("a gradient of 1 added to the 10 that .grad held", scale.gradient(), 11.0);
  }

  void padding_only() {
    Scale scale({0, 6}, {0, 3});
    expect("the loss when one microbatch is all padding", run(scale, 3), 2.0);
    expect("the gradient when one microbatch is all padding", scale.gradient(), 2.0);
    // The hooks of later steps count every microbatch.
    expect("the number of forwards of two microbatches, one of them all padding,",
           scale.num_forwards(), 2);
    expect("the number of backwards of two microbatches, one of them all padding,",
           scale.num_backwards(), 2);
  }

  void no_target_at_all() {
    examine("a step without a target", [this](Communicator&) {
      Scale padding({0, 0}, {0, 0});
      expect("the loss of a step without a target", run(padding, 0), 0.0);
      expect("the gradient of a step without a target", padding.gradient(), 0.0);
      expect("the number of backwards of a step of two microbatches without a target",
             padding.num_backwards(), 2);
    });
    for (const double num_targets : {-1.0, std::nan("")}) {
      const std::string what = concat("a step of ", num_targets, " targets");
      examine(what, [&](Communicator&) {
        Scale nothing({4}, {0});
        expect_error(what + " cannot be: accumulate_gradients()", {},
                     [&] { run(nothing, num_targets); });
        expect(concat("after ", what, " the gradient"), nothing.gradient(), 0.0);
      });
    }
  }

  // An overflow must reach whoever decides what to do about it: the loss scaler, and the report.
  void hides_no_overflow() {
    Scale scale({1, std::numeric_limits<float>::infinity()}, {1, 1});
    const double loss = run(scale, 2);
    if (std::isfinite(loss)) fault(concat("the loss of an infinite microbatch is ", loss));
    if (std::isfinite(scale.gradient()))
      fault(concat("the gradient of an infinite microbatch is ", scale.gradient()));
  }

 private:
  std::string wrong_in(const Step& step) {
    Scale scale(step.sums, step.num_targets);
    scale.set_gradient(step.held);
    const double loss = run(scale, step.num_targets_of_all);
    const Sums wanted = sums_of(step);
    const auto count = static_cast<int>(step.sums.size());
    if (loss != wanted.loss)
      return concat("the loss is ", digits(loss), ", not ", digits(wanted.loss));
    const auto gradient = static_cast<float>(scale.gradient());
    if (gradient != wanted.gradient)
      return concat("the gradient is ", digits(gradient), ", not ", digits(wanted.gradient));
    if (scale.num_forwards() != count || scale.num_backwards() != count)
      return concat(scale.num_forwards(), " forwards and ", scale.num_backwards(),
                    " backwards run");
    if (scale.most_kept() > 0 || scale.has_kept_graph() || scale.has_activations())
      return "activations outlive the backward of their microbatch";
    return "";
  }

  double run(Scale& scale, double num_targets) {
    const double loss = accumulate_gradients(scale.loss_sum(), scale.batch(), num_targets);
    if (!scale.has_its_gradient())
      fault("backward puts another tensor into .grad; the optimizer reads the one that was there");
    return loss;
  }
};

}  // namespace

std::vector<std::string> judge_linked(Communicator& comm) {
  Checks checks(comm);
  checks.examine("one denominator", &Checks::one_denominator);
  checks.divides_once();
  checks.examine("targets on other ranks", &Checks::global_count);
  checks.examine("the order of the microbatches", &Checks::fold_in_order);
  checks.examine("the loss in double", &Checks::adds_the_loss_in_double);
  checks.examine("one microbatch at a time", &Checks::one_microbatch_at_a_time);
  checks.examine("what .grad held", &Checks::adds_to_the_gradient);
  checks.examine("a microbatch of padding", &Checks::padding_only);
  checks.examine("a loss that is infinite", &Checks::hides_no_overflow);
  checks.no_target_at_all();
  Draw draw(comm);
  const std::int64_t few = draw.number(4, 12);
  checks.examine(draw.announce(concat("a step of ", few, " microbatches")),
                 [&](Communicator&) { checks.adds_up_many(any_step(few, draw)); });
  checks.examine("a step of 40 microbatches",
                 [&](Communicator&) { checks.adds_up_many(any_step(40, draw)); });
  return checks.faults();
}

}  // namespace ladder
