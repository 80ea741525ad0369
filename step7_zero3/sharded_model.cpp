#include "step7_zero3/sharded_model.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "common/core/check.hpp"
#include "common/core/trace.hpp"
#include "step7_zero3/sharded_units.hpp"

namespace ladder {
namespace {

ShardPlan plan_model(const ModelBuilder& build, const Communicator& comm, Device device) {
  const Model shapes = build(/*on_unit=*/{}, at::kMeta);
  return plan_shards(plan_flat_layout(shapes.units(), shard_multiple(comm.size()), device),
                     comm.size(), comm.rank());
}

}  // namespace

struct ShardedModel::State {
  ShardPlan plan_;
  ShardedUnits units_;
  Model model_;       // a layer's tensors have memory only while its unit is whole
  std::size_t last_;  // layers and their units have the same index, from 0 to this one
  std::size_t prefetch_;

  State(const ModelBuilder& build, int prefetch, Communicator& comm, Device device)
      : plan_(plan_model(build, comm, device)),
        units_(plan_, comm),
        model_(build([this](const Unit& unit) { units_.add(unit); }, at::kCPU)),
        last_(model_.layers.size() - 1),
        prefetch_(static_cast<std::size_t>(prefetch)) {
    check(prefetch >= 0, "ShardedModel: prefetch is ", prefetch, ", it must be at least 0");
  }

  at::Tensor forward(const at::Tensor& tokens) {
    units_.reshard_all();  // units left whole by a forward without a backward
    at::Tensor x = tokens;
    for (std::size_t layer = 0; layer <= last_; ++layer) {
      begin_forward(layer);
      const Span span(model_.layers[layer].unit.name, {"unit", static_cast<std::int64_t>(layer)});
      x = model_.layers[layer].forward(x);
      mark_backward(x, model_.layers[layer]);
      on_gradient_of_output(x, layer);
      end_forward(layer);
    }
    return x;
  }

  // Unshards the layer's unit, and starts to gather the next ones.
  void begin_forward(std::size_t layer) {
    for (std::size_t u = layer; u <= std::min(layer + prefetch_, last_); ++u)
      units_.start_unshard(u);
    units_.unshard(layer);
  }

  // Whether the layer's unit stays whole until it is needed again.
  bool is_kept(std::size_t layer) const {
    return layer == last_ ||
           std::any_of(model_.layers.begin(), model_.layers.end(),
                       [=](const Layer& reader) { return reader.reads == layer; });
  }

  // Reshards the layer's unit, unless it is kept.
  void end_forward(std::size_t layer) {
    if (!is_kept(layer)) units_.reshard(layer);
    if (layer == last_ && !at::GradMode::is_enabled())
      units_.reshard_all();  // no backward will come
  }

  void on_gradient_of_output(const at::Tensor& output, std::size_t layer) {
    if (!output.requires_grad()) return;
    output.register_hook([this, layer](const at::Tensor& /*gradient*/) { begin_backward(layer); });
  }

  // Called when the gradient has arrived at the layer's output.
  void begin_backward(std::size_t layer) {
    // Backward goes through the layers in reverse. When the gradient arrives at the output of one
    // layer, which is the input of the next, the backward of that next layer is over.
    if (layer < last_) {
      units_.reshard(layer + 1);
      if (const auto read = model_.layers[layer + 1].reads) units_.reshard(*read);
    }
    for (std::size_t u = layer; u >= 1 && u + prefetch_ >= layer; --u) units_.start_unshard(u);
    if (layer >= 1) units_.unshard(layer);
    // Already whole, unless another forward came in between.
    if (const auto read = model_.layers[layer].reads) units_.unshard(*read);
  }
};

ShardedModel::ShardedModel(const ModelBuilder& build, int prefetch, Communicator& comm,
                           Device device)
    : state_(std::make_unique<State>(build, prefetch, comm, device)) {}

ShardedModel::~ShardedModel() = default;

at::Tensor ShardedModel::forward(const at::Tensor& tokens) {
  return state_->forward(tokens);
}

const ShardPlan& ShardedModel::plan() const {
  return state_->plan_;
}

const at::Tensor& ShardedModel::param_shard() const {
  return state_->units_.param_shard();
}

const std::vector<NamedTensor>& ShardedModel::leaves() const {
  return state_->units_.leaves();
}

const VocabParts& ShardedModel::parts() const {
  return state_->model_.parts;
}

}  // namespace ladder
