// Common to the benchmarks: they measure under the conditions of a trainer.
#pragma once

namespace ladder {

// Sets the process up as run_main() does before training: the memory ledger
// counts, freed memory stays in the process, and one thread computes. Call this
// before creating the first tensor.
void become_training_process();

// Runs the registered benchmarks on every rank; only rank 0 reports.
void run_benchmarks_on(int rank);

// main() of a Google Benchmark program that has registered its benchmarks.
int run_benchmarks(int argc, char** argv);

}  // namespace ladder
