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

std::vector<NamedTensor> Model::leaves() const {
  std::vector<NamedTensor> leaves;
  for (const Layer& layer : layers)
    leaves.insert(leaves.end(), layer.unit.tensors.begin(), layer.unit.tensors.end());
  return leaves;
}

std::int64_t count_parameters(const Model& model) {
  std::int64_t count = 0;
  for (const NamedTensor& leaf : model.leaves()) count += leaf.tensor.numel();
  return count;
}

}  // namespace ladder
