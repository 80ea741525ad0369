// What a run needs in memory at least, from its options alone, before anything is allocated.
//
// All sizes are doubles, because options may ask for more bytes than an integer can count.
#pragma once

#include <functional>
#include <limits>

#include "common/train/options/options.hpp"
#include "common/train/theory.hpp"

namespace ladder {

struct Ranks {
  int in_world = 1;
  int here = 1;  // on this machine, at least
};
Ranks ranks_here(const TrainOptions& options);  // as the launcher has started them, or --ranks

// Bytes in host memory, of all ranks on this machine. What a run needs on top (its libraries, what
// backward computes with, but for the loss) is left out, and so is all that depends on more than the options say.
struct MemoryNeed {
  double state = 0;        // parameters, gradients, optimizer
  double activations = 0;  // what a microbatch's forward keeps for its backward, and the loss needs
  double tokens = 0;       // token ids and targets of an optimizer step
  double total() const { return state + activations + tokens; }
};

// On a GPU, only tokens are in host memory. All ranks together read no more samples at a time than
// the data has. The state is one replica's, cut evenly over the ranks: what every step needs.
MemoryNeed memory_need(const TrainOptions& options, const Ranks& ranks, int ranks_per_replica = 1,
                       double num_samples = std::numeric_limits<double>::infinity());

// Throws UsageError naming the options and both sizes if the run needs more than these bytes; and
// what theory.state_bytes() throws. Opens the data only where its size decides.
void check_memory(const TrainOptions& options, const Theory& theory, const Ranks& ranks,
                  double limit_bytes);
// The same; count_samples() tells the size of the data.
void check_memory(const TrainOptions& options, const Theory& theory, const Ranks& ranks,
                  double limit_bytes, const std::function<double()>& count_samples);

// Throws UsageError naming the options if the parameters, the tokens and activations of a step, or
// the bytes that it sends are more than integers can count: theory and --dry-run compute with
// those.
void check_is_countable(const TrainOptions& options);

}  // namespace ladder
