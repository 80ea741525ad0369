// CUDA's compiler for kernels that are made while a program runs. It needs no GPU.
#ifdef LADDER_WITH_CUDA

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "common/core/check.hpp"

namespace ladder {
namespace {

using Create = int(void**, const char*, const char*, int, const char* const*, const char* const*);
using Compile = int(void*, int, const char* const*);

// As cuDNN does it: NVRTC is opened by name, and opens its builtins by name.
TEST(Nvrtc, CompilesWhereItIsOpenedByName) {
  void* const nvrtc = dlopen(concat("libnvrtc.so.", CUDART_VERSION / 1000).c_str(), RTLD_LAZY);
  ASSERT_NE(nvrtc, nullptr) << dlerror();
  const auto create = reinterpret_cast<Create*>(dlsym(nvrtc, "nvrtcCreateProgram"));
  const auto compile = reinterpret_cast<Compile*>(dlsym(nvrtc, "nvrtcCompileProgram"));
  ASSERT_TRUE(create != nullptr && compile != nullptr);
  void* program = nullptr;
  constexpr const char* kSource = "__global__ void one(float* x) { x[threadIdx.x] = 1; }";
  ASSERT_EQ(create(&program, kSource, "one.cu", 0, nullptr, nullptr), 0);
  EXPECT_EQ(compile(program, 0, nullptr), 0) << "7: it has not found libnvrtc-builtins";
}

}  // namespace
}  // namespace ladder

#endif
