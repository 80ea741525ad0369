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

// What differs, if anything does: a line for each series, with the first such step and the
// difference; the hash of the final parameters; and a line for each tensor of them, with the number
// of elements and the relative distance.
struct Differences {
  std::vector<std::string> series, hash, tensors;
};
Differences compare_runs(const FinishedRun& run, const FinishedRun& wanted);

// All lines, each beginning with the names of both runs; nothing if they are equal to the bit.
std::vector<std::string> differences(const FinishedRun& run, const FinishedRun& wanted);

}  // namespace ladder
