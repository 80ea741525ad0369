// The model that the options describe: what its layers are, where its tensors lie, and the model
// itself. Nothing beyond this header asks which family it belongs to.
#pragma once

#include <cstdint>

#include "common/model/model.hpp"
#include "common/optim/flat_layout.hpp"
#include "common/optim/flat_model.hpp"
#include "common/train/options.hpp"

namespace ladder {

ModelBuilder model_builder(const TrainOptions& options);

// Where the model's tensors lie in a flat buffer; units are multiples of unit_multiple elements.
// Allocates no tensor.
FlatLayout layout_of(const TrainOptions& options, std::int64_t unit_multiple = 1);

// Builds the model into `flat`, unit by unit: its tensors are views of flat.params() and never have
// memory of their own. Throws CheckError if `flat` has another layout.
Model build_model(const TrainOptions& options, FlatModel& flat);

}  // namespace ladder
