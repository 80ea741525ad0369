// Common to the benchmarks: they measure under the conditions of a trainer, and their main()s.
#pragma once

#include <functional>

#include "common/comm/world.hpp"

namespace CLI {
class App;
}

namespace ladder {

// Sets the process up as run_main() does before training: the memory ledger
// counts, freed memory stays in the process, and one thread computes. Call this
// before creating the first tensor.
void become_training_process();

// main() of a Google Benchmark program that has registered its benchmarks.
int run_benchmarks(int argc, char** argv);

// main() of one that runs on ranks, where `add` registers them; only rank 0 reports.
int run_benchmarks_on_ranks(int argc, char** argv, Transport transport,
                            const std::function<void(World&)>& add);

// main() of one that prints a table of its own: reads the command line, becomes a training process
// and runs. Options show their defaults. Returns the exit code: an error is said once.
int run_table(CLI::App& app, int argc, char** argv, const std::function<int()>& run);

}  // namespace ladder
