// Fits a line to points with Ladder's accumulation and optimizer, from outside Ladder.
#include <ATen/ATen.h>

#include <cstdio>

#include "common/optim/flat_model.hpp"
#include "common/optim/optimizer.hpp"
#include "step0_single_gpu/accumulate_gradients.hpp"

int main() {
  at::Tensor slope = at::zeros({1}).set_requires_grad(true);
  ladder::FlatModel model({{"line", {{"slope", slope}}}});
  ladder::FlatGradients grads(model);
  ladder::Optimizer optimizer(model, grads,
                              {.kind = ladder::OptimizerKind::kSgd, .weight_decay = 0});
  const ladder::LossSum loss_sum = [&](const ladder::Microbatch& microbatch) {
    const at::Tensor x = microbatch.tokens.to(at::kFloat);
    return (slope * x - 3.0 * x).square().sum();
  };
  const ladder::Microbatches batch(
      {{at::tensor({1, 2}, at::kLong), {}, 2}, {at::tensor({3}, at::kLong), {}, 1}});
  double loss = 0;
  for (int step = 0; step < 100; ++step) {
    grads.zero();
    loss = ladder::accumulate_gradients(loss_sum, batch, 3.0);
    optimizer.step(0.05);
  }
  std::printf("slope %.4f, loss %.2e\n", slope.item<double>(), loss);
  return loss < 1e-6 ? 0 : 1;
}
