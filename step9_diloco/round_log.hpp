// What a worker's inner steps have done, until the others hear of it at the end of the round.
//
// An inner step communicates nothing, not even its loss. At the end of a round the workers add up
// the sums and counts of all steps since the last one, in a single all-reduce: four doubles per
// step, and one for requests to stop. A worker that is alone in its world does so in every step: it
// waits for nobody, and sees at once that it is asked to stop.
#pragma once

#include <vector>

#include "common/comm/communicator.hpp"
#include "common/train/report/step_record.hpp"

namespace ladder {

class RoundLog {
 public:
  // Adds an inner step on this worker: the mean loss over its units, and norms of its own gradient
  // and parameters.
  void add(const StepRecord& own) { steps_.push_back(own); }

  // The steps since the last call, of all workers: losses are means over all units, 0 if there are
  // none; norms are means over workers. Collective, blocking. Every worker has taken as many steps.
  std::vector<StepRecord> share(bool is_stop_requested, Communicator& comm);

 private:
  std::vector<StepRecord> steps_;
};

}  // namespace ladder
