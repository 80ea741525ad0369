// Measured beside theory: where a run has held, sent or read something else than its trainer's cost
// card says. Reports, the ladder's table, benchmarks, tests and judges all ask here.
#pragma once

#include <string>
#include <vector>

#include "common/core/memory_ledger.hpp"
#include "common/train/report/report.hpp"
#include "common/train/sends.hpp"
#include "common/train/theory.hpp"

namespace ladder {

// The steps of a run.
StepsTaken steps_of(const TrainReport& report);

// Fills in what theory says of this rank, and where the report differs from it.
void add_theory(TrainReport& report, const TrainOptions& options, const Theory& theory,
                int world_size, int rank, const Machines& machines);

// A line for each amount that differs, with both values and, for memory, what that may mean;
// nothing if there is none. `report`: this rank's. `before`: what was held before the run, such as
// the rest of one that has failed.
std::vector<std::string> differences_from_theory(const Theory& theory, const TrainOptions& options,
                                                 const TrainReport& report,
                                                 const MemoryReading& before, int world_size,
                                                 int rank, const Machines& machines = {});

}  // namespace ladder
