// What the memory of a tensor was counted under (memory_ledger.hpp), in a program and in words.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "common/core/memory_ledger.hpp"

namespace ladder {

const char* to_string(MemoryCategory category);  // "optimizer state"

// Nothing if it was not counted: the tensor is on a GPU, older than the ledger, or has no elements.
std::optional<MemoryCategory> memory_category_of(const at::Tensor& tensor);

}  // namespace ladder
