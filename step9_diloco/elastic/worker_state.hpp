// All that a worker's training needs, in place: what another worker may receive in order to go on
// as this one would.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/core/unit.hpp"

namespace ladder {

// All tensors are contiguous and on the CPU.
struct WorkerState {
  // Equal on all healthy workers: global parameters, outer momentum.
  std::vector<NamedTensor> shared;
  std::vector<NamedTensor> own;  // the worker's parameters, the state of its inner optimizer
  std::function<std::int64_t()> outer_steps;            // committed ones
  std::function<std::vector<std::int64_t>()> counters;  // always as many; the first: outer steps
  std::function<void(const std::vector<std::int64_t>&)> set_counters;  // from 0 to 2^40
};

}  // namespace ladder
