// The parity ladder as data: which trainers there are, and which of them must equal which.
#pragma once

#include <string>
#include <vector>

#include "common/train/trainer.hpp"

namespace ladder {

struct Rung {
  Trainer trainer;
  std::vector<std::string> equals;  // to the bit; the first is the step before
  // Of its sums. Rungs of another order are equal with one microbatch only, else up to rounding.
  Fold fold = Fold::kMicrobatchesFirst;
  // Each rank's start may be another: rank 0's counts. Where a rank makes its slices only, nobody could
  // send it the rest: the seed is the same by contract.
  bool starts_by_broadcast = true;
  const std::string& step() const { return trainer.step; }
};

// Step 0, which plays all ranks in one process: what every rung is held against.
const Rung& oracle();
// In the order of the course.
const std::vector<Rung>& rungs();
const Rung& rung_of(const std::string& step);

}  // namespace ladder
