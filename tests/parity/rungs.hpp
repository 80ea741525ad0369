// The trainers of the parity ladder. Each must equal the one before it, and step 0, to the bit.
#pragma once

#include <string>
#include <vector>

#include "common/train/trainer.hpp"

namespace ladder {

// Step 0, which simulates all ranks in one process. Every rung is compared with it.
const Trainer& oracle();
// The data-parallel trainers, in the order of the course.
const std::vector<Trainer>& rungs();
// Step 8. Its ranks are not only replicas, so pipeline_ladder_test climbs it by itself.
const Trainer& pipeline();
// Step 8's chapter objectives, which objective_ladder_test climbs.
const Trainer& pipeline_with_objectives();
// Step 8's chapter about tensor parallelism, which tensor_ladder_test climbs.
const Trainer& tensor_trainer();
// Step 9. It trains otherwise than all the others, so diloco_ladder_test climbs it by itself.
const Trainer& diloco();
const Trainer& rung_of(const std::string& step);

// Options for the same training, with which the rung equals step 0 to the bit.
TrainOptions comparable(const Trainer& rung, const TrainOptions& options);

}  // namespace ladder
