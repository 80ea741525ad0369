#include "common/model/model.hpp"

#include "common/core/trace.hpp"
#include "common/model/weight_gradients.hpp"

namespace ladder {

void mark_backward(const at::Tensor& output, const Layer& layer) {
  TraceLog* const log = TraceLog::current();
  if (log == nullptr || !output.requires_grad()) return;
  const char* const name = log->keep(layer.unit.name);
  output.register_hook([log, name](const at::Tensor& /*gradient*/) { log->mark(name); });
}

at::Tensor Model::forward(const at::Tensor& input) const {
  at::Tensor x = input;
  for (const Layer& layer : layers) {
    // Autograd adds up the parts of a gradient that two layers share: none of them may wait.
    const DeferWeightGradients scope(layer.reads ? nullptr : DeferWeightGradients::current());
    const Span span(layer.unit.name);
    x = layer.forward(x);
    mark_backward(x, layer);
  }
  return x;
}

std::vector<Unit> Model::units() const {
  std::vector<Unit> units;
  for (const Layer& layer : layers) units.push_back(layer.unit);
  return units;
}

std::int64_t count_parameters(const std::vector<Unit>& units) {
  std::int64_t count = 0;
  for (const Unit& unit : units) {
    for (const NamedTensor& named : unit.tensors) count += named.tensor.numel();
  }
  return count;
}

}  // namespace ladder
