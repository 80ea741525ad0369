// How step 0 plays several ranks.
#pragma once

#include "common/train/options/option_table.hpp"

namespace ladder {

struct OracleOptions {
  std::int64_t simulate_ranks = 1;  // that this process plays

  void declare(OptionTable& table) {
    table.heading("Oracle");
    table
        .number("--simulate-ranks", simulate_ranks, {1, kMostRanks},
                "play this many ranks in one process, adding up in their order")
        .changes_no_bits();  // a resumed run says so of ranks in general
    table.moved("--fold", "exact sums have one order: --gradient-sum exact");
  }
  void shape_batch(BatchShape& batch) const {
    batch.replicas_per_rank = simulate_ranks;
    if (simulate_ranks > 1) batch.multiplied += concat(", --simulate-ranks ", simulate_ranks);
  }
};

// An option that the chapter cuda_graphs has become: given to step 0, it names that program.
struct MovedGraphs {
  void declare(OptionTable& table) {
    table.moved("--cuda-graphs",
                "a program of its own trains with them: ./ladder train cuda_graphs");
  }
};

}  // namespace ladder
