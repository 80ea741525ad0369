// Compares what a run held and sent with theory, to the byte.
#pragma once

#include <string>
#include <vector>

#include "common/core/memory_ledger.hpp"
#include "common/train/trainer.hpp"

namespace ladder {

// A line for each amount that differs, with both values and, for memory, what that may mean;
// nothing if there is none. `report`: this rank's. `before`: what was held before the run, such as
// the rest of one that has failed.
//
// has_scratch: an operation may be in flight between steps; its scratch is not compared.
std::vector<std::string> differences_from_theory(const Trainer& trainer,
                                                 const TrainOptions& options,
                                                 const TrainReport& report,
                                                 const MemoryReading& before, int world_size,
                                                 int rank, bool has_scratch = false);

}  // namespace ladder
