// Exercise of step 7: when are a unit's parameters made whole, and when are they dropped?
//
// forward() below goes through the layers, and units_ allocates and frees the memory. Write the
// rest as step7_zero3/sharded_model.hpp describes it, then run:
//   ./ladder exercise step7_zero3
#include "step7_zero3/sharded_model.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "common/core/check.hpp"

namespace ladder {
namespace {

ShardPlan plan_model(const ModelBuilder& build, const Communicator& comm, at::Device device) {
  const Model shapes = build(/*on_unit=*/{}, at::kMeta);
  return plan_shards(plan_flat_layout(shapes.units(), shard_multiple(comm.size()), device),
                     comm.size(), comm.rank());
}

}  // namespace

ShardedModel::ShardedModel(const ModelBuilder& build, int prefetch, Communicator& comm,
                           at::Device device)
    : plan_(plan_model(build, comm, device)),
      units_(plan_, comm),
      model_(build([this](const Unit& unit) { units_.add(unit); }, at::kCPU)),
      last_(model_.layers.size() - 1),
      prefetch_(static_cast<std::size_t>(prefetch)) {
  check(prefetch >= 0, "ShardedModel: prefetch is ", prefetch, ", it must be at least 0");
}

at::Tensor ShardedModel::forward(const at::Tensor& tokens) {
  units_.reshard_all();  // units left whole by a forward without a backward
  at::Tensor x = tokens;
  for (std::size_t layer = 0; layer <= last_; ++layer) {
    begin_forward(layer);
    x = model_.layers[layer].forward(x);
    on_gradient_of_output(x, layer);
    end_forward(layer);
  }
  return x;
}

void ShardedModel::begin_forward(std::size_t layer) {
  // start_unshard() only starts a gather; unshard() also waits for it. What should be in flight
  // while this unit computes?
  static_cast<void>(layer);
  not_implemented("step7_zero3: ShardedModel::begin_forward()");
}

bool ShardedModel::is_kept(std::size_t layer) const {
  // Which layer's backward follows right after its forward? And whose unit does another layer read?
  static_cast<void>(layer);
  not_implemented("step7_zero3: ShardedModel::is_kept()");
}

void ShardedModel::end_forward(std::size_t layer) {
  // If no backward will come (at::GradMode::is_enabled() tells), nothing may stay whole.
  static_cast<void>(layer);
  not_implemented("step7_zero3: ShardedModel::end_forward()");
}

void ShardedModel::on_gradient_of_output(const at::Tensor& output, std::size_t layer) {
  // A hook set by output.register_hook([this, layer](const at::Tensor& gradient) { … }) is called
  // when the gradient has arrived at `output`. A tensor that requires no gradient takes no hook.
  static_cast<void>(output);
  static_cast<void>(layer);
  not_implemented("step7_zero3: ShardedModel::on_gradient_of_output()");
}

void ShardedModel::begin_backward(std::size_t layer) {
  // Which layer's backward is over now? Which units should be in flight while this one's backward
  // runs? And which layer's backward reads no parameter?
  static_cast<void>(layer);
  not_implemented("step7_zero3: ShardedModel::begin_backward()");
}

}  // namespace ladder
