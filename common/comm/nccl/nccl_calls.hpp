// What every caller of NCCL needs.
#pragma once

#include <ATen/core/Tensor.h>
#include <nccl.h>

#include <cstddef>

#include "common/core/check.hpp"

namespace ladder {

inline void check_nccl(ncclResult_t result, const char* call) {
  if (result != ncclSuccess)
    throw CheckError(
        concat(call, ": ", ncclGetErrorString(result), ": ", ncclGetLastError(nullptr)));
}

inline std::byte* data_of(const at::Tensor& tensor) {  // by the const accessor: most are only read
  return static_cast<std::byte*>(const_cast<void*>(tensor.const_data_ptr()));
}

}  // namespace ladder
