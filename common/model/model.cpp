#include "common/model/model.hpp"

#include "common/model/weight_gradients.hpp"

namespace ladder {

at::Tensor Model::forward(const at::Tensor& input) const {
  at::Tensor x = input;
  for (const Layer& layer : layers) {
    // Autograd adds up the parts of a gradient that two layers share: none of them may wait.
    const DeferWeightGradients scope(layer.reads ? nullptr : DeferWeightGradients::current());
    x = layer.forward(x);
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
