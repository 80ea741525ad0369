// What every caller of NCCL needs.
#pragma once

#include <nccl.h>

#include "common/core/check.hpp"

namespace ladder {

inline void check_nccl(ncclResult_t result, const char* call) {
  if (result != ncclSuccess)
    throw CheckError(
        concat(call, ": ", ncclGetErrorString(result), ": ", ncclGetLastError(nullptr)));
}

}  // namespace ladder
