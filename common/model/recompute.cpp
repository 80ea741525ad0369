#include "common/model/recompute.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "common/core/check.hpp"
#include "common/core/trace.hpp"
#include "common/model/weight_gradients.hpp"

namespace ladder {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Edge;
using torch::autograd::variable_list;

// One call of a layer: how to make it again.
struct Call : torch::CustomClassHolder {
  std::shared_ptr<const Layer> layer;
  // Of the thread that forward ran on, at that time.
  WeightGradientQueue* queue = DeferWeightGradients::current();
  TraceLog* log = TraceLog::current();

  explicit Call(std::shared_ptr<const Layer> called) : layer(std::move(called)) {}

  // Returns where a backward through the layer begins. The output itself is not needed for it.
  Edge make_again(const at::Tensor& input) const {
    const at::AutoGradMode with_graph(true);
    const DeferWeightGradients deferred(queue);
    const TraceScope traced(log);  // on a GPU, backward runs on a thread of autograd
    const Span span("recompute");
    return torch::autograd::impl::gradient_edge(layer->forward(input));
  }
};

struct Recomputed : torch::autograd::Function<Recomputed> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& /*anchor*/, const c10::intrusive_ptr<Call>& call) {
    context->save_for_backward({input});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return call->layer->forward(input);  // without a graph, as in every Function
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    check(!at::GradMode::is_enabled(),
          "recomputing: a gradient of a gradient needs the graph that "
          "is not kept: train with --recompute none");
    const at::Tensor given = context->get_saved_variables()[0];
    const at::Tensor input = given.detach().set_requires_grad(given.requires_grad());
    const auto call = context->saved_data["call"].toCapsule();
    const Edge output = static_cast<const Call&>(*call).make_again(input);
    torch::autograd::Engine::get_default_engine().execute(
        {output}, {outputs[0]}, /*keep_graph=*/false, /*create_graph=*/false,
        /*accumulate_grad=*/true);
    return {input.grad(), {}, {}};
  }
};

}  // namespace

LayerForward recomputed(const Layer& layer) {
  return [layer = std::make_shared<const Layer>(layer)](const at::Tensor& input) {
    const auto& parameters = layer->unit.tensors;
    const bool trains =
        at::GradMode::is_enabled() &&
        (input.requires_grad() ||
         std::ranges::any_of(parameters, [](const auto& p) { return p.tensor.requires_grad(); }));
    if (!trains) return layer->forward(input);
    // Makes autograd call backward where only parameters need a gradient. These are no inputs: they
    // get theirs inside.
    const at::Tensor anchor = at::empty({0}).set_requires_grad(true);
    return Recomputed::apply(input, anchor, c10::make_intrusive<Call>(layer));
  };
}

}  // namespace ladder
