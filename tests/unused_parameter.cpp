// A program, started by failure_test, in which rank 1 leaves a parameter out of its backward. The
// argument selects what reduces: reducer (step 1) or bucketer (step 4).
#include <ATen/ops/ones.h>

#include <string>

#include "common/train/run_main.hpp"
#include "step1_ddp_reference/reference_ddp.hpp"
#include "step4_bucketed_ddp/gradient_bucketer.hpp"

namespace ladder {
namespace {

LossSum loss_without_bias_on_rank_1(const std::vector<Unit>& units, int rank) {
  const at::Tensor weight = units[0].tensors[0].tensor, bias = units[0].tensors[1].tensor;
  return [=](const Microbatch& /*microbatch*/) {
    return rank == 1 ? weight.sum() : weight.sum() + bias.sum();
  };
}

int run(World& world, const std::string& who) {
  const std::vector<Unit> units = {{"unit",
                                    {{"weight", at::ones({64}).set_requires_grad(true)},
                                     {"bias", at::ones({64}).set_requires_grad(true)}}}};
  FlatModel flat(units);
  FlatGradients grads(flat);
  const LossSum loss_sum = loss_without_bias_on_rank_1(units, world.comm().rank());
  const Microbatches batch({Microbatch{}});
  if (who == "reducer") {
    ReferenceDdp ddp(flat, world.comm());
    ddp.arm(1);
    accumulate_gradients(ddp.wrap(loss_sum), batch, 1);
    ddp.wait();
  } else {
    GradientBucketer bucketer(grads, plan_buckets(flat.layout(), 256), world.comm());
    bucketer.arm(1);
    accumulate_gradients(loss_sum, batch, 1);
    bucketer.wait();
  }
  return 0;
}

}  // namespace
}  // namespace ladder

int main(int /*argc*/, char** argv) {
  ladder::World world(ladder::Transport::kMpi);
  return ladder::run_in_world(world, [&] { return ladder::run(world, argv[1]); });
}
