// Which of libtorch's fused attention kernels a model is trained with.
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "common/model/model_options.hpp"

namespace ladder {

// "cudnn", "flash", "efficient" or "math" (which is not fused): what libtorch takes on this device
// for this model's shapes, as set_deterministic() allows now. Allocates one row of queries, keys
// and values for a moment. On the CPU it is right for fp32 only (modules.hpp).
std::string attention_backend(const ModelOptions& model, at::Device device);

}  // namespace ladder
