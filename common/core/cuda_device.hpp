// Whether this process can use an NVIDIA GPU, and how tensors get there.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace ladder {

// The number of GPUs that this process sees: 0 without a driver, and in a build without CUDA.
int num_cuda_devices();

// Empty if there is a GPU to use; otherwise one line that says why not: the build has no CUDA, the
// machine has no driver or too old a one, or the driver shows no GPU.
std::string cuda_problem();

// Makes this GPU the current one of the calling thread, where tensors on "cuda" go. Throws
// CheckError if there is no such GPU.
void use_cuda_device(int index);

// What tells the current GPU from all others, on any machine. Throws CheckError in a build without
// CUDA.
std::string current_gpu_id();

// Lets libtorch take only kernels that give the same bits in every run, and add up 16-bit products
// in fp32 throughout; or any kernel. Before the first tensor on a GPU.
void set_deterministic(bool is_deterministic);

// The tensor itself if it is there, else a copy, for all work that is queued from now on. The host
// does not wait for a copy of a pinned tensor to a GPU.
at::Tensor to_device(const at::Tensor& tensor, at::Device device);

// Returns once the current stream of this device has done all that it was given; at once on the
// CPU.
void wait_for(at::Device device);

}  // namespace ladder
