#pragma once

namespace ladder {

enum class Reduction { kNative, kOrdered };  // nccl_communicator.hpp says what they are

struct NcclOptions {
  Reduction reduction = Reduction::kNative;
  double timeout_s = 600;  // on the GPU, after which an operation is taken for hung
};

}  // namespace ladder
