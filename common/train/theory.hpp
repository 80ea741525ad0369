// Measured beside theory: where a run has held, sent or read something else than its trainer's cost
// card says. Reports, the ladder's table, benchmarks, tests and judges all ask here.
#pragma once

#include <string>
#include <vector>

#include "common/core/memory_ledger.hpp"
#include "common/train/sends.hpp"
#include "common/train/trainer.hpp"

namespace ladder {

// One optimizer step with all its microbatches and rows.
StepsTaken full_step(const TrainOptions& options);

// The steps of a run.
StepsTaken steps_of(const TrainReport& report);

// The sum of what these steps send, by ranks on these machines.
Traffic traffic_theory(const Trainer& trainer, const TrainOptions& options, const StepsTaken& steps,
                       int world_size, int rank, const Machines& machines = {});

// Fills in what theory says of this rank, and where the report differs from it.
void add_theory(TrainReport& report, const TrainOptions& options, const Trainer& trainer,
                int world_size, int rank, const Machines& machines);

// A line for each amount that differs, with both values and, for memory, what that may mean;
// nothing if there is none. `report`: this rank's. `before`: what was held before the run, such as
// the rest of one that has failed.
std::vector<std::string> differences_from_theory(const Trainer& trainer,
                                                 const TrainOptions& options,
                                                 const TrainReport& report,
                                                 const MemoryReading& before, int world_size,
                                                 int rank, const Machines& machines = {});

}  // namespace ladder
