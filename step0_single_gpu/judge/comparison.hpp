// What a run must end like: compares it with step 0's bit by bit, and what it held and sent with
// theory, to the byte.
#pragma once

#include <string>
#include <vector>

#include "common/core/memory_ledger.hpp"
#include "common/train/trainer.hpp"

namespace ladder {

// A finished run. Its final parameters are in FOLDER/checkpoints.
struct FinishedRun {
  std::string name;
  TrainReport report;
  std::string folder = {};
};

// A run of step 0 with these options, in which this process plays so many replicas, or, where sums
// are exact, trains on their microbatches in a plain loop. It is saved in `out`. Local.
FinishedRun ask_oracle(TrainOptions options, int num_replicas, const std::string& out);

// The same training with sums that have the same bits in any order of ranks and microbatches: exact
// ones, or, as those of 16-bit gradients never are, of one microbatch.
TrainOptions with_sums_of_any_order(TrainOptions options);

// What differs, if anything does: a line for each series, with the first such step and the
// difference; the hash of the final parameters; and a line for each tensor of them, with the number
// of elements and the relative distance.
struct Differences {
  std::vector<std::string> series, hash, tensors;
};
Differences compare_runs(const FinishedRun& run, const FinishedRun& wanted);

// All lines, each beginning with the names of both runs; nothing if they are equal to the bit.
std::vector<std::string> differences(const FinishedRun& run, const FinishedRun& wanted);

}  // namespace ladder
