// The parity ladder as data: which trainers there are, and which of them must equal which.
#pragma once

#include <string>
#include <vector>

#include "common/comm/world.hpp"
#include "common/train/options.hpp"
#include "common/train/report.hpp"

namespace ladder {

struct Rung {
  std::string step;
  TrainReport (*train)(const TrainOptions& options, World& world);
  StateBytes (*state_bytes)(const TrainOptions& options, int world_size, int rank);
  Traffic (*step_traffic)(const TrainOptions& options, int world_size, int rank);
  std::vector<std::string> equals;  // to the bit; the first is the step before
};

// Step 0, which plays all ranks in one process: what every rung is held against.
const Rung& oracle();
// In the order of the course.
const std::vector<Rung>& rungs();

}  // namespace ladder
