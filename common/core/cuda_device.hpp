// Whether this process can use an NVIDIA GPU.
#pragma once

#include <string>

namespace ladder {

// The number of GPUs that this process sees: 0 without a driver, and in a build without CUDA.
int num_cuda_devices();

// Empty if there is a GPU to use; otherwise one line that says why not: the build has no CUDA, the
// machine has no driver or too old a one, or the driver shows no GPU.
std::string cuda_problem();

}  // namespace ladder
