#include "common/train/build_model.hpp"

#include "common/model/build_layers.hpp"

namespace ladder {

ModelBuilder model_builder(const TrainOptions& options) {
  return layer_builder(options.model, options.seed);
}

StateTensors shapes_of_parameters(const TrainOptions& options) {
  return whole_tensors(model_builder(options)(/*on_unit=*/{}, at::kMeta).leaves());
}

Model build_model(const TrainOptions& options, FlatModel& flat) {
  return model_builder(options)([&](const Unit& unit) { flat.add(unit); }, at::kCPU);
}

Model build_model(const TrainOptions& options, const std::vector<std::int64_t>& layers,
                  const Parts& parts, FlatModel& flat) {
  return build_layers(options.model, options.seed, parts, layers,
                      [&](const Unit& unit) { flat.add(unit); });
}

}  // namespace ladder
