// The models that --model knows by name: a family, or a family with a known shape.
#pragma once

#include <optional>

#include "common/model/model_options.hpp"

namespace ladder {

enum class NamedModel { kGpt2, kLlama, kSmolLm2_135M, kSmolLm2_360M };

ModelFamily family_of(NamedModel model);
NamedModel named_model(ModelFamily family);  // the family without a shape

// Its shape, all but `context`; nothing for a family without one. SmolLM2: Allal et al.,
// arXiv 2502.02737, and the models' config.json.
std::optional<ModelOptions> shape_of(NamedModel model);

}  // namespace ladder
