// Pipelines with planted mistakes, which the ladder must catch.
#pragma once

#include <vector>

#include "common/comm/world.hpp"
#include "common/train/options/options.hpp"
#include "common/train/report/report.hpp"

namespace ladder {

enum class PipelineError {
  kNone,  // the control: the loop without mistakes
  kScaledAgainAfterEachFlush,
  kWipedBetweenFlushes,
  kSummedBeforeTheLastBackward,
  kAnotherMicrobatchsActivation,
  kMissingTiedPart,
};
const char* to_string(PipelineError error);

// Step 8's trainer with the mistake. Collective.
TrainReport train_pipeline_with(PipelineError error, const TrainOptions& options, World& world);

}  // namespace ladder
