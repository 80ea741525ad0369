// Exercise of step 7: when are a unit's parameters made whole, and when are they dropped?
//
// forward() below walks through the units, and units_ moves the memory. Write the rest as
// step7_zero3/sharded_gpt.hpp describes it, then:
//   ./ladder exercise step7_zero3
#include "step7_zero3/sharded_gpt.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "common/core/check.hpp"

namespace ladder {
namespace {

ShardPlan plan_model(const GptOptions& options, const Communicator& comm,
                     const PrepareUnit& prepare) {
  const Gpt shapes(options, /*seed=*/0, prepare, at::kMeta);
  return plan_shards(plan_flat_layout(shapes.units(), shard_multiple(comm.size())), comm.size(),
                     comm.rank());
}

}  // namespace

ShardedGpt::ShardedGpt(const GptOptions& options, std::uint64_t seed, int prefetch,
                       Communicator& comm, const PrepareUnit& prepare)
    : plan_(plan_model(options, comm, prepare)),
      units_(plan_, comm),
      model_(options, seed,
             [&](const Unit& unit) {
               if (prepare) prepare(unit);
               units_.add(unit);
             }),
      last_(units_.num_units() - 1),
      prefetch_(static_cast<std::size_t>(prefetch)) {
  check(prefetch >= 0, "ShardedGpt: prefetch is ", prefetch, ", it must be at least 0");
}

at::Tensor ShardedGpt::forward(const at::Tensor& tokens) {
  units_.reshard_all();  // what a backward that never came has left
  begin_forward(0);
  at::Tensor x = model_.embedding()(tokens);
  on_gradient_of_output(x, 0);
  end_forward(0);
  for (std::size_t u = 1; u < last_; ++u) {
    begin_forward(u);
    x = model_.blocks()[u - 1](x);
    on_gradient_of_output(x, u);
    end_forward(u);
  }
  begin_forward(last_);
  const at::Tensor logits = model_.head()(x);
  on_gradient_of_output(logits, last_);
  end_forward(last_);
  return logits;
}

at::Tensor ShardedGpt::loss_sum(const at::Tensor& tokens, const at::Tensor& targets) {
  return cross_entropy_sum(forward(tokens), targets);
}

void ShardedGpt::begin_forward(std::size_t unit) {
  // start_unshard() starts a gather, unshard() waits for it as well. What should be on its way while
  // this unit computes?
  static_cast<void>(unit);
  not_implemented("step7_zero3: ShardedGpt::begin_forward()");
}

bool ShardedGpt::is_kept(std::size_t unit) const {
  // Whose backward comes right after its forward? And whose parameters does another unit use?
  static_cast<void>(unit);
  not_implemented("step7_zero3: ShardedGpt::is_kept()");
}

void ShardedGpt::end_forward(std::size_t unit) {
  // Where no backward will come (at::GradMode::is_enabled() says so), nothing may stay behind.
  static_cast<void>(unit);
  not_implemented("step7_zero3: ShardedGpt::end_forward()");
}

void ShardedGpt::on_gradient_of_output(const at::Tensor& output, std::size_t unit) {
  // output.register_hook([this, unit](const at::Tensor& gradient) { … }) is called when the gradient
  // has arrived at `output`. One that needs no gradient takes no hook.
  static_cast<void>(output);
  static_cast<void>(unit);
  not_implemented("step7_zero3: ShardedGpt::on_gradient_of_output()");
}

void ShardedGpt::begin_backward(std::size_t unit) {
  // Which unit's backward is over now? Which ones should be on their way while this one's runs? Whose
  // backward reads no parameter?
  static_cast<void>(unit);
  not_implemented("step7_zero3: ShardedGpt::begin_backward()");
}

}  // namespace ladder
