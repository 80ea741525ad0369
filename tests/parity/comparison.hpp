// Holds one run against another, bit by bit, and says where they part.
#pragma once

#include <string>
#include <vector>

#include "common/train/report.hpp"

namespace ladder {

// A run that has been made. Its final parameters lie in FOLDER/checkpoints.
struct FinishedRun {
  std::string name;
  TrainReport report;
  std::string folder = {};
};

// Nothing if the two are equal to the bit. Else a line for each series that differs, with the first
// step at which it does and how far; and one for each tensor of the final parameters that differs,
// with the number of elements and the relative distance. Each line begins with both names.
std::vector<std::string> differences(const FinishedRun& run, const FinishedRun& wanted);

}  // namespace ladder
