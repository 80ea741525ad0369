// The parity ladder as data: the trainers. Each must equal the one before it, and step 0, to the
// bit.
#pragma once

#include <string>
#include <vector>

#include "common/train/trainer.hpp"
#include "step0_single_gpu/judge/comparison.hpp"

namespace ladder {

struct Rung {
  Trainer trainer;
  // Over the ranks. With several microbatches this is another order than step 0's, so the two are
  // equal up to rounding, unless sums are exact.
  bool sums_each_microbatch = false;
  // Ranks may start with different parameters; rank 0's count. If a rank creates only its slices,
  // no rank could send it the rest, so the seed is the same by contract.
  bool starts_by_broadcast = true;
  const std::string& step() const { return trainer.step; }
  // Options for the same training, with which this equals step 0 to the bit.
  TrainOptions comparable(const TrainOptions& options) const {
    return sums_each_microbatch ? with_sums_of_any_order(options) : options;
  }
};

// Step 0, which simulates all ranks in one process. Every rung is compared with it.
const Rung& oracle();
// The data-parallel trainers, in the order of the course.
const std::vector<Rung>& rungs();
// Step 8. Its ranks are not only replicas, so pipeline_ladder_test climbs it by itself.
const Rung& pipeline();
// Its chapter objectives, which objective_ladder_test climbs.
const Rung& pipeline_with_objectives();
// Step 9. It trains otherwise than all the others, so diloco_ladder_test climbs it by itself.
const Rung& diloco();
const Rung& rung_of(const std::string& step);

}  // namespace ladder
