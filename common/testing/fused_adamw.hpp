// For tests: a step of AdamW by libtorch's own kernel, on a CPU or a GPU.
#pragma once

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>

#include "common/optim/adamw_step.hpp"

namespace ladder {

inline void fused_adamw(const at::Tensor& params, const at::Tensor& grads, const at::Tensor& m,
                        const at::Tensor& v, const AdamWStep& step) {
  const at::Tensor t = at::full({}, step.t, params.options());
  at::_fused_adamw_({params}, {grads.to(at::kFloat).mul(step.grad_factor)}, {m}, {v},
                    /*max_exp_avg_sqs=*/{}, {t}, step.learning_rate, step.beta1, step.beta2,
                    step.weight_decay, step.eps, /*amsgrad=*/false, /*maximize=*/false);
}

}  // namespace ladder
