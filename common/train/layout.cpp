#include "common/train/layout.hpp"

#include "common/model/unit_shapes.hpp"

namespace ladder {

FlatLayout layout_of(const TrainOptions& options, std::int64_t unit_multiple) {
  return plan_flat_layout(unit_shapes(options.model), options.model.precision, unit_multiple,
                          options.device);
}

FlatLayout layout_of(const TrainOptions& options, const std::vector<std::int64_t>& layers,
                     const Parts& parts) {
  return plan_flat_layout(unit_shapes(options.model, layers, parts), options.model.precision,
                          /*unit_multiple=*/1, options.device);
}

TrainOptions in_fp32(TrainOptions options) {
  options.model.precision = {};
  return options;
}

}  // namespace ladder
