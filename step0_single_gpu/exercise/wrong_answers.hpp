// Answers that look right and are not. The grader must reject each of them, for the reason given.
#pragma once

#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/core/check.hpp"
#include "common/testing/wrong_answer.hpp"
#include "step0_single_gpu/exercise/grader.hpp"

namespace ladder::step0 {

// The right answer, but for what share_of(microbatch) makes of a microbatch's loss.
template <class ShareOf>
double accumulate(const Microbatches& batch, double num_targets, double loss_scale,
                  ShareOf share_of) {
  check(num_targets > 0, "no targets");
  double loss = 0;
  for (const Microbatch& microbatch : batch) {
    const at::Tensor share = share_of(microbatch);
    share.backward(at::full_like(share, loss_scale));
    loss += share.template item<double>();
  }
  return loss;
}

inline double right(const LossSum& loss_sum, const Microbatches& batch, double num_targets,
                    double loss_scale) {
  return accumulate(batch, num_targets, loss_scale,
                    [&](const Microbatch& m) { return loss_sum(m) / num_targets; });
}

inline double mean_of_means(const LossSum& loss_sum, const Microbatches& batch, double num_targets,
                            double loss_scale) {
  return accumulate(batch, num_targets, loss_scale, [&](const Microbatch& m) {
    const auto own_targets = static_cast<double>(std::max<std::int64_t>(1, m.num_targets));
    return loss_sum(m) / own_targets / static_cast<double>(batch.size());
  });
}

inline double own_count_instead_of_the_steps(const LossSum& loss_sum, const Microbatches& batch,
                                             double num_targets, double loss_scale) {
  return accumulate(batch, num_targets, loss_scale, [&](const Microbatch& m) {
    return loss_sum(m) / static_cast<double>(batch.num_targets());
  });
}

inline double forgets_to_divide(const LossSum& loss_sum, const Microbatches& batch,
                                double num_targets, double loss_scale) {
  return accumulate(batch, num_targets, loss_scale, loss_sum) / num_targets;
}

inline double last_microbatch_first(const LossSum& loss_sum, const Microbatches& batch,
                                    double num_targets, double loss_scale) {
  std::vector<Microbatch> list(batch.begin(), batch.end());
  std::reverse(list.begin(), list.end());
  return right(loss_sum, Microbatches(std::move(list)), num_targets, loss_scale);
}

inline double one_backward_at_the_end(const LossSum& loss_sum, const Microbatches& batch,
                                      double num_targets, double loss_scale) {
  check(num_targets > 0, "no targets");
  std::vector<at::Tensor> shares;
  for (const Microbatch& microbatch : batch) shares.push_back(loss_sum(microbatch) / num_targets);
  const at::Tensor loss = at::stack(shares).sum();
  loss.backward(at::full_like(loss, loss_scale));
  return loss.item<double>();
}

inline double keeps_the_graphs(const LossSum& loss_sum, const Microbatches& batch,
                               double num_targets, double loss_scale) {
  check(num_targets > 0, "no targets");
  double loss = 0;
  std::vector<at::Tensor> shares;
  for (const Microbatch& microbatch : batch) {
    shares.push_back(loss_sum(microbatch) / num_targets);
    shares.back().backward(at::full_like(shares.back(), loss_scale), /*retain_graph=*/true);
    loss += shares.back().item<double>();
  }
  return loss;
}

inline double adds_the_loss_in_fp32(const LossSum& loss_sum, const Microbatches& batch,
                                    double num_targets, double loss_scale) {
  float loss = 0;
  accumulate(batch, num_targets, loss_scale, [&](const Microbatch& m) {
    const at::Tensor share = loss_sum(m) / num_targets;
    loss += share.item<float>();
    return share;
  });
  return loss;
}

inline double reports_the_last_loss(const LossSum& loss_sum, const Microbatches& batch,
                                    double num_targets, double loss_scale) {
  double loss = 0;
  accumulate(batch, num_targets, loss_scale, [&](const Microbatch& m) {
    const at::Tensor share = loss_sum(m) / num_targets;
    loss = share.item<double>();
    return share;
  });
  return loss;
}

inline double overwrites_the_gradient(const LossSum& loss_sum, const Microbatches& batch,
                                      double num_targets, double loss_scale) {
  bool is_first = true;
  return accumulate(batch, num_targets, loss_scale, [&](const Microbatch& m) {
    const at::Tensor share = loss_sum(m) / num_targets;
    auto node = share.grad_fn();
    while (node->num_outputs() > 0) node = node->next_edge(0).function;  // to the parameter
    if (std::exchange(is_first, false))
      static_cast<torch::autograd::AccumulateGrad&>(*node).variable.mutable_grad().zero_();
    return share;
  });
}

inline double refuses_padding(const LossSum& loss_sum, const Microbatches& batch,
                              double num_targets, double loss_scale) {
  for (const Microbatch& microbatch : batch) check(microbatch.num_targets > 0, "no targets");
  return right(loss_sum, batch, num_targets, loss_scale);
}

inline double accepts_an_empty_step(const LossSum& loss_sum, const Microbatches& batch,
                                    double num_targets, double loss_scale) {
  return num_targets == 0 ? 0 : right(loss_sum, batch, num_targets, loss_scale);
}

inline double accepts_fewer_than_no_targets(const LossSum& loss_sum, const Microbatches& batch,
                                            double num_targets, double loss_scale) {
  return num_targets < 0 ? 0 : right(loss_sum, batch, num_targets, loss_scale);
}

inline double forgets_the_loss_scale(const LossSum& loss_sum, const Microbatches& batch,
                                     double num_targets, double /*loss_scale*/) {
  return right(loss_sum, batch, num_targets, 1);
}

inline double scales_the_loss_that_it_returns(const LossSum& loss_sum, const Microbatches& batch,
                                              double num_targets, double loss_scale) {
  return loss_scale * right(loss_sum, batch, num_targets, loss_scale);
}

inline std::vector<WrongAnswer<AccumulateGradients>> wrong_answers() {
  return {
      {"mean of means", mean_of_means, 1,
       "the loss of 30 targets with mean 1 and 10 with mean 3 is 2, not 1.5"},
      {"own count instead of the step's", own_count_instead_of_the_steps, 1,
       "this rank's part of the loss when the step has 160 targets is 1.5, not 0.375",
       "the step has 160 targets"},
      {"forgets to divide", forgets_to_divide, 1,
       "the gradient of 30 targets with mean 1 and 10 with mean 3 is 60, not 1.5", "gradient"},
      {"last microbatch first", last_microbatch_first, 1, "the gradient 1 + 1e8 - 1e8",
       "in the order of the microbatches, is"},
      {"one backward at the end", one_backward_at_the_end, 1,
       "the activations of 2 earlier microbatches are alive"},
      {"keeps the graphs", keeps_the_graphs, 1,
       "the activations of 2 earlier microbatches are alive", "the activations of"},
      {"adds the loss in fp32", adds_the_loss_in_fp32, 1,
       "of which fp32 sees only the 1, is 1, not 1.0000000009313226", "fp32"},
      {"reports the last loss", reports_the_last_loss, 1,
       "the loss of 30 targets with mean 1 and 10 with mean 3 is 0.75, not 1.5", "the loss"},
      {"overwrites the gradient", overwrites_the_gradient, 1, "the 10 that .grad held is 1, not 11",
       "that .grad held"},
      {"refuses padding", refuses_padding, 1, "a microbatch of padding: no targets", "padding"},
      {"accepts an empty step", accepts_an_empty_step, 1,
       "a step of 0 targets has no mean loss: accumulate_gradients() says nothing", "of 0 targets"},
      {"accepts fewer than no targets", accepts_fewer_than_no_targets, 1,
       "a step of -1 targets has no mean loss: accumulate_gradients() says nothing",
       "of -1 targets"},
      {"forgets the loss scale", forgets_the_loss_scale, 1,
       "the gradient with a loss scale of 8 is 1.5, not 12", "a loss scale of 8"},
      {"scales the loss that it returns", scales_the_loss_that_it_returns, 1,
       "the loss with a loss scale of 8 is 12, not 1.5", "a loss scale of 8"},
  };
}

}  // namespace ladder::step0
