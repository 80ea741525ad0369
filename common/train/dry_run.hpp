// What a run will be: its first lines, and what --dry-run shows, as text and, for ./ladder plan, as
// data.
#pragma once

#include <string>

#include "common/core/json.hpp"
#include "common/train/options/options.hpp"
#include "common/train/theory.hpp"

namespace ladder {

// Model and batch, what this rank will hold by theory, and where the run writes.
std::string describe_start(const TrainOptions& options, const Theory& theory, int world_size,
                           int rank);

// Parameters, bytes per rank by category, tokens per step.
std::string describe_run(const TrainOptions& options, const Theory& theory, int world_size);

// The plans of a step. Of the ranks, only the first replica's are listed, one for each stage: others
// hold as much, and send no more, because the first of several slices are the longest. Allocates no
// tensor, so it takes a fraction of a second for any number of ranks. Throws what the step's plans
// throw.
Json dry_run_json(const TrainOptions& options, const Theory& theory, int world_size);

}  // namespace ladder
