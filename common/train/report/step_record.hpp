// What a step leaves in the log.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ladder {

// What an objective measures besides the loss: names and values, in the order in which they are
// shown.
using Metrics = std::vector<std::pair<std::string, double>>;

inline Metrics join(Metrics first, const Metrics& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// What metrics are formed from, once everything has been added up: sums can be added up over
// microbatches and ranks, means cannot. Unlike the loss, these are plain sums in double: the order
// of addition, and so the number of ranks, may change their last digit.
using MetricSums = std::vector<double>;

// What the loop knows about a step once it is done: global values, the same on every rank.
struct StepRecord {
  double loss = 0;                 // a mean, in nats
  double grad_norm = 0;            // before clipping
  double param_norm = 0;           // after the step
  double denominator = 0;          // of the loss: what it is a mean over, counted on all ranks
  bool is_stop_requested = false;  // any rank has received a signal
  Metrics metrics = {};
};

}  // namespace ladder
