// Data parallelism with planted mistakes, which the ladder must catch.
#pragma once

#include <string>
#include <vector>

#include "common/comm/world.hpp"
#include "common/train/options/options.hpp"
#include "common/train/report/report.hpp"

namespace ladder {

enum class PlantedError {
  kNone,  // the control: the loop without mistakes
  kMeanOfGradients,
  kSkippedBucket,
  kAnotherRanksData,
  kNoBroadcast,
  kReducesParameters,
  kReducesLastMicrobatchOnly,
  kOwnDenominator,
};
const char* to_string(PlantedError error);
const std::vector<PlantedError>& planted_errors();  // all but kNone

// Step 3's trainer with the mistake. Its replicas start different (each rank has its own seed), so
// that the broadcast matters. Collective.
TrainReport train_with(PlantedError error, const TrainOptions& options, World& world);

}  // namespace ladder
