#include "common/core/cuda_device.hpp"

#ifdef LADDER_WITH_CUDA
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#endif

#include <ATen/Context.h>

#include <cstdlib>

#include "common/core/check.hpp"

namespace ladder {

#ifdef LADDER_WITH_CUDA

namespace {

struct DeviceCount {
  int value = 0;
  cudaError_t error = cudaSuccess;
};

DeviceCount count_devices() {
  DeviceCount count;
  count.error = cudaGetDeviceCount(&count.value);
  if (count.error != cudaSuccess) {
    count.value = 0;
    cudaGetLastError();  // or the next to ask would think that the error is its own
  }
  return count;
}

std::string version_text(int version) {
  return concat(version / 1000, ".", version % 1000 / 10);
}

}  // namespace

void wait_for(at::Device device) {
  if (device.is_cuda()) c10::cuda::getCurrentCUDAStream(device.index()).synchronize();
}

int num_cuda_devices() {
  return count_devices().value;
}

std::string cuda_problem() {
  const DeviceCount count = count_devices();
  if (count.value > 0) return "";
  int driver = 0;
  cudaDriverGetVersion(&driver);
  if (driver == 0) return "this machine has no NVIDIA driver";
  if (count.error == cudaErrorInsufficientDriver) {
    return concat("the NVIDIA driver knows CUDA up to ", version_text(driver),
                  ", this build needs ", version_text(CUDART_VERSION));
  }
  if (count.error == cudaSuccess || count.error == cudaErrorNoDevice) {
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    return concat("the NVIDIA driver shows no GPU",
                  visible != nullptr ? concat(" (CUDA_VISIBLE_DEVICES is '", visible, "')") : "");
  }
  return concat("CUDA does not start: ", cudaGetErrorString(count.error));
}

void use_cuda_device(int index) {
  const int count = num_cuda_devices();
  check(index >= 0 && index < count, "there is no GPU ", index, ", this process sees ", count);
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(index));
}

std::string current_gpu_id() {
  cudaDeviceProp properties = {};
  const cudaError_t error = cudaGetDeviceProperties(&properties, c10::cuda::current_device());
  check(error == cudaSuccess, "cudaGetDeviceProperties: ", cudaGetErrorString(error));
  return {properties.uuid.bytes, sizeof properties.uuid.bytes};
}

#else

void wait_for(at::Device /*device*/) {}

int num_cuda_devices() {
  return 0;
}

std::string current_gpu_id() {
  throw CheckError(cuda_problem());
}

void use_cuda_device(int index) {
  throw CheckError(concat("there is no GPU ", index, ": ", cuda_problem()));
}

std::string cuda_problem() {
  return "this build has no CUDA: LADDER_CUDA is OFF";
}

#endif

at::Tensor to_device(const at::Tensor& tensor, at::Device device) {
  return tensor.to(device, tensor.scalar_type(), /*non_blocking=*/device.is_cuda());
}

void set_deterministic(bool is_deterministic) {
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(is_deterministic, /*warn_only=*/false);
  // New tensors need not be filled: nothing here reads what it has not written.
  context.setDeterministicFillUninitializedMemory(false);
  // cuBLAS may cut the sums of a 16-bit product into parts. It then adds the parts up in fp32, too.
  context.setAllowBF16ReductionCuBLAS(!is_deterministic);
  context.setAllowFP16ReductionCuBLAS(!is_deterministic);
  // cuBLAS adds up in an order of its own unless each stream has a workspace of a fixed size.
  if (is_deterministic) setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
}

}  // namespace ladder
