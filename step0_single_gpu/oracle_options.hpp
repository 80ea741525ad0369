// How step 0 plays several ranks.
#pragma once

#include "common/train/options/option_table.hpp"

namespace ladder {

// The order in which gradients are summed: first over a rank's microbatches and then over ranks
// (steps 0 to 5), or first over the ranks within each microbatch (steps 6 and 7, which reduce after
// every microbatch).
enum class Fold { kMicrobatchesFirst, kRanksFirst };

struct OracleOptions {
  std::int64_t simulate_ranks = 1;  // that this process plays
  Fold fold = Fold::kMicrobatchesFirst;

  void declare(OptionTable& table) {
    table.heading("Oracle");
    table
        .number("--simulate-ranks", simulate_ranks, {1, kMostRanks},
                "play this many ranks in one process, adding up in their order")
        .changes_no_bits();  // a resumed run says so of ranks in general
    table.choice(
        "--fold", fold,
        {{"microbatches-first", Fold::kMicrobatchesFirst}, {"ranks-first", Fold::kRanksFirst}},
        "order of sums: over a rank's microbatches first, or over the ranks first");
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
