// config.json of a Hugging Face folder: which model its weights are.
//
// "model_type" names its family, which reads and writes the rest (family.hpp). What would make
// another function of the same weights (scaled rotary positions, biases in Llama, another
// activation) is refused by name and value. Ignored is what changes nothing here: where a model
// comes from, token ids, how it is run, and dropout, because training is without it.
#pragma once

#include <string>

#include "common/core/json.hpp"
#include "common/model/config_reader.hpp"
#include "common/model/family.hpp"

namespace ladder {

// Trusts nothing. Throws CheckError with `path` (a file's name), the setting and its value.
ModelConfig parse_model_config(const std::string& text, const std::string& path);

// The JSON of a config.json for a model of this shape whose weights are stored as `dtype`.
Json model_config_json(const ModelOptions& model, at::ScalarType dtype);

}  // namespace ladder
