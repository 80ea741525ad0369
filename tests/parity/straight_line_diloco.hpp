// DiLoCo straight from its definition: all workers one after the other, in one process, without any
// code of step 9. The parity ladder compares step 9 with it.
#pragma once

#include <string>
#include <vector>

#include "common/train/options/options.hpp"

namespace ladder {

struct StraightLine {
  std::vector<double> losses;                 // of each inner step, over all workers' tokens
  std::vector<std::string> global_hashes;     // of the global parameters after each inner step
  std::vector<double> val_losses;             // of the global model
  std::string sample;                         // that it writes at the end
  std::vector<std::string> parameter_hashes;  // of each worker's own at the end
};

StraightLine straight_line_diloco(const TrainOptions& options, int num_workers);

}  // namespace ladder
