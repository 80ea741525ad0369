#include "step0_single_gpu/objective.hpp"

#include <ATen/core/Reduction.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/nll_loss_backward.h>
#include <ATen/ops/nll_loss_forward.h>
#include <torch/csrc/autograd/custom_function.h>

#include "common/core/check.hpp"
#include "common/core/cuda_device.hpp"
#include "common/core/torch_types.hpp"
#include "common/model/cross_entropy_on_gpu.hpp"
#include "step0_single_gpu/cross_entropy_in_parts.hpp"

namespace ladder {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The operators of at::cross_entropy_loss(), with the same bits, but for each logit there are never
// more than two numbers: the gradient of the log-softmax becomes that of the logits where it is, and
// so does the log-softmax itself, if nobody else has the logits. logits [N, V], targets [N] -> [].
struct CrossEntropySum : torch::autograd::Function<CrossEntropySum> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits,
                            const at::Tensor& targets, bool is_ours) {
    at::Tensor log_softmax = is_ours ? logits.detach() : at::empty_like(logits);
    at::_log_softmax_out(log_softmax, logits, /*dim=*/1, /*half_to_float=*/false);
    const auto [loss, weight] =
        at::nll_loss_forward(log_softmax, targets, {}, at::Reduction::Sum, kIgnoredTarget);
    context->save_for_backward({log_softmax, targets, weight});
    return loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const variable_list saved = context->get_saved_variables();
    at::Tensor gradient = at::nll_loss_backward(outputs[0], saved[0], saved[1], /*weight=*/{},
                                                at::Reduction::Sum, kIgnoredTarget, saved[2]);
    at::_log_softmax_backward_data_out(gradient, gradient, saved[0], /*dim=*/1,
                                       gradient.scalar_type());
    return {gradient, {}, {}};
  }
};

}  // namespace

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor there = to_device(targets, logits.device());
  if (logits.is_cuda()) return cross_entropy_sum_on_gpu(logits, there, kIgnoredTarget);
  const at::Tensor wide = widened(logits);
  return CrossEntropySum::apply(wide.flatten(0, -2), there.flatten(), !wide.is_same(logits));
}

at::Tensor cross_entropy_sum(const Outputs& logits, const at::Tensor& targets) {
  const VocabParts& parts = logits.parts;
  if (parts.total == 1) return cross_entropy_sum(logits.values, targets);
  const std::int64_t num_own = parts.begin(parts.first + parts.own) - parts.begin(parts.first);
  check(logits.values.size(-1) == num_own, "the cross-entropy of parts that have ", num_own,
        " tokens: there are ", logits.values.size(-1), " logits");
  return cross_entropy_sum(logits.values, targets, parts);
}

}  // namespace ladder
