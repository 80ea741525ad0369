// The model that the options describe: how to build it, where its tensors lie in a flat buffer, and
// the model itself. Code that uses this header need not know which family the model belongs to.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/model.hpp"
#include "common/model/parts.hpp"
#include "common/optim/flat_model.hpp"
#include "common/train/checkpoint/state_tensors.hpp"
#include "common/train/layout.hpp"
#include "common/train/options/options.hpp"

namespace ladder {

ModelBuilder model_builder(const TrainOptions& options);

// Names and shapes of the model's parameters, without their memory.
StateTensors shapes_of_parameters(const TrainOptions& options);

// Builds the model into `flat`, unit by unit: its tensors become views of flat.params() and keep no
// memory of their own. Throws CheckError if the layout of `flat` differs.
Model build_model(const TrainOptions& options, FlatModel& flat);
Model build_model(const TrainOptions& options, const std::vector<std::int64_t>& layers,
                  const Parts& parts, FlatModel& flat);

}  // namespace ladder
