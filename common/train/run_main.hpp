// The main() of every trainer: command line, world, training, report, exit code.
#pragma once

#include <functional>

#include "common/comm/world.hpp"
#include "common/train/trainer.hpp"

namespace CLI {
class App;
}

namespace ladder {

inline constexpr int kExitDone = 0;
inline constexpr int kExitError = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitStopped = 75;  // saved and stopped on a signal

// Does everything from argc to the exit code. An error on one rank is shown with its rank and ends
// all ranks. Rank 0 writes OUT/report.json after training.
int run_main(int argc, char** argv, const Trainer& trainer);

// The main() of a program that is no trainer: reads the command line, runs, and returns the exit
// code. Of several ranks, the first speaks for all.
int run_command(CLI::App& app, int argc, char** argv, const std::function<int()>& run);

// Runs `body` and returns its exit code. An error on one rank is shown with its rank, and ends all
// ranks with the matching code, because none may wait for a rank that has failed.
int run_in_world(World& world, const std::function<int()>& body);

}  // namespace ladder
