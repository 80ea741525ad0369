// Compares two runs bit by bit and reports where they diverge.
#pragma once

#include <string>
#include <vector>

#include "common/train/report/report.hpp"

namespace ladder {

// A finished run. Its final parameters are in FOLDER/checkpoints.
struct FinishedRun {
  std::string name;
  TrainReport report;
  std::string folder = {};
};

// Returns nothing if the runs are equal to the bit. Otherwise returns a line for each series that
// differs, with the first such step and the difference, and a line for each tensor of the final
// parameters that differs, with the number of elements and the relative distance. Each line begins
// with both names.
std::vector<std::string> differences(const FinishedRun& run, const FinishedRun& wanted);

}  // namespace ladder
