// The headers that nearly every file reads, compiled once. Files still include what they use.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/generated/variable_factories.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>
