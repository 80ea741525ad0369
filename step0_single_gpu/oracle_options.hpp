// How many ranks step 0 plays in one process (simulated_ranks.hpp).
#pragma once

#include <cstdint>

#include "common/core/check.hpp"
#include "common/train/options/option_table.hpp"

namespace ladder {

struct OracleOptions {
  std::int64_t simulate_ranks = 1;  // that this process plays

  void declare(OptionTable& table) {
    table.heading("Oracle");
    table
        .number("--simulate-ranks", simulate_ranks, {1, kMostRanks},
                "play this many ranks in one process, adding up as they would")
        .changes_no_bits();  // a resumed run says so of ranks in general
  }
  void finalize(const TrainOptions& options) const {
    check_usage(simulate_ranks == 1 || options.gradient_sum == SumMode::kOrdered,
                "--gradient-sum exact does not go with --simulate-ranks: one process has the same "
                "sum by itself");
  }
  void shape_batch(BatchShape& batch) const {
    batch.replicas_per_rank = simulate_ranks;
    if (simulate_ranks > 1) batch.multiplied += concat(", --simulate-ranks ", simulate_ranks);
  }
};

// How many sums wait at once while the ranks' tree is added up: log2(num_ranks), rounded down.
std::int64_t most_waiting_sums(std::int64_t num_ranks);

// Throws UsageError in a world of several ranks: one process plays them.
void check_alone(int world_size);

}  // namespace ladder
