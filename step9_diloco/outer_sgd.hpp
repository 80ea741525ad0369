// The outer optimizer of DiLoCo: SGD with Nesterov's momentum, on the global parameters.
//
// The pseudogradient g of a round is what the workers' average has moved away from the global
// parameters: global − local, averaged. It is not a gradient, but it points where one would.
//
//   v = μ v + g        d = g + μ v        p = p − lr · d
//
// v starts at 0, so that the first step is v = g, as in torch.optim.SGD(nesterov=True). Without
// momentum, d = g, and lr = 1 makes the average of the workers the new global parameters.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

namespace ladder {

struct OuterSgd {
  double lr = 0.7;
  double momentum = 0.9;  // μ

  // One step. All [n], fp32; `params` and `velocity` are updated in place, and `pseudogradient` is
  // overwritten. Local; allocates nothing.
  void step(const at::Tensor& params, const at::Tensor& velocity,
            const at::Tensor& pseudogradient) const {
    const at::NoGradGuard no_grad;
    if (momentum != 0) {
      velocity.mul_(momentum).add_(pseudogradient);
      pseudogradient.add_(velocity, momentum);  // now the direction d
    }
    params.sub_(pseudogradient, lr);
  }
};

}  // namespace ladder
