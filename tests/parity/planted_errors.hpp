// Data parallelism with a mistake in it: what the ladder is there to catch.
#pragma once

#include <string>
#include <vector>

#include "common/comm/world.hpp"
#include "common/train/options.hpp"
#include "common/train/report.hpp"

namespace ladder {

enum class PlantedError {
  kNone,  // the control: the same loop without a mistake
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

// Step 3's trainer with the mistake. Its replicas start apart (each rank from a seed of its own), so
// that the broadcast matters. Collective.
TrainReport train_with(PlantedError error, const TrainOptions& options, World& world);

}  // namespace ladder
