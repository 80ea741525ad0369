// One step of the course as a value, which its main(), the parity ladder and the benchmarks run: what
// theory says of it, and the loop.
#pragma once

#include "common/train/report/report.hpp"
#include "common/train/theory.hpp"

namespace ladder {

struct Trainer : Theory {
  // Collective: every rank of the world calls it with the same options. If one rank throws, the
  // others wait until the caller ends them, as run_main does.
  TrainReport (*train)(const TrainOptions& options, Communicator& comm);
};

}  // namespace ladder
