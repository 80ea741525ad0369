// The model whose parameters a checkpoint of ours holds.
#pragma once

#include <filesystem>

#include "common/model/model_options.hpp"

namespace ladder {

// Family and shape, from the options in state.json and the tensors in model.safetensors; `context`
// is the one that the run was trained with. Throws CheckError naming the file if one is damaged.
ModelOptions model_of_checkpoint(const std::filesystem::path& checkpoint);

}  // namespace ladder
