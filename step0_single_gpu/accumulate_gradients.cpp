#include "step0_single_gpu/accumulate_gradients.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "common/core/check.hpp"
#include "common/core/trace.hpp"

namespace ladder {

double accumulate_gradients(const LossSum& loss_sum, const Microbatches& batch,
                            double num_targets) {
  check(num_targets >= 0, "a step has ", num_targets, " target tokens, it must be 0 or more");
  const double mean_over = std::max(num_targets, 1.0);  // padding alone has a loss of 0
  at::Tensor loss;  // on the device until the end: reading it would wait for the device
  std::int64_t number = 0;
  for (const Microbatch& microbatch : batch) {
    Span span("forward", {"microbatch", number++});
    const at::Tensor share = loss_sum(microbatch) / mean_over;
    span.next("backward");
    // Autograd adds to .grad: 0 + g0, then + g1, …
    share.backward();
    const at::Tensor value = share.detach().to(at::kDouble);
    loss = loss.defined() ? loss + value : value;
  }
  return loss.defined() ? loss.item<double>() : 0;
}

}  // namespace ladder
