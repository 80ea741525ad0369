// The headers that nearly every file reads, compiled once. Files still include what they use. Not
// <ATen/ATen.h>: with all of libtorch's operators this header would cost every file 2 s instead of
// 1.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>
