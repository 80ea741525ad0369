// Over how many ranks the state is cut: all of them, or fewer, so that there are several copies of it
// (hybrid sharding, which step 7 teaches).
#pragma once

#include <string>

#include "common/train/options/options.hpp"
#include "common/train/theory.hpp"

namespace ladder {

class OptionTable;

struct ShardOptions {
  int num_ranks = 0;  // --shard-ranks; 0: all

  void declare(OptionTable& table);
};

// The ranks that share a copy of the state, of so many in all. Throws UsageError, naming both, unless
// they divide them.
int shard_ranks_of(const TrainOptions& options, int world_size);

// The ranks of each copy, a line for --dry-run; nothing if there is one.
std::string describe_copies(const TrainOptions& options, int world_size);

// How ./ladder plan tries a step that cuts: over all ranks, and over those of a machine, or over
// eight, as many GPUs as one usually has.
Tries tries_of_cuts(const TrainOptions& options, int world_size);

}  // namespace ladder
