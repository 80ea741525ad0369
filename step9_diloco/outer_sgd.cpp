#include "step9_diloco/outer_sgd.hpp"

#include <ATen/core/grad_mode.h>

namespace ladder {

void OuterSgd::step(const at::Tensor& params, const at::Tensor& velocity,
                    const at::Tensor& pseudogradient) const {
  const at::NoGradGuard no_grad;
  if (momentum != 0) {
    velocity.mul_(momentum).add_(pseudogradient);
    pseudogradient.add_(velocity, momentum);  // now the direction d
  }
  params.sub_(pseudogradient, lr);
}

}  // namespace ladder
