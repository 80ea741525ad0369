// What the benchmarks of one process have in common: they measure under the
// conditions of a trainer.
#pragma once

namespace ladder {

// Does what run_main() does before it trains: the memory ledger counts, freed
// memory stays with the process, and one thread computes. Call it before the
// first tensor.
void become_training_process();

// Runs what is registered on every rank; rank 0 alone reports.
void run_benchmarks_on(int rank);

// main() of a Google Benchmark program that has registered its benchmarks.
int run_benchmarks(int argc, char** argv);

}  // namespace ladder
