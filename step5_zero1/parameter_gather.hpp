// Hides the gather of the parameters under the next forward.
//
//   start()    every rank's slices are on their way to every rank, those of the first layer first
//   forward    each layer waits for its own unit, while the units of later layers travel
//
// The gathers start at the beginning of a step, once its first number has been summed: a link that
// serves one operation after the other would keep that number back until all of them are done.
//
// Collective: start() and complete(). Every rank runs a forward through all layers, or calls
//             complete(), before it starts anything else: a gather makes progress only while its
//             rank waits.
// Lifetime:   `flat` and `comm` outlive this; this outlives the last forward of `model`.
// Streams:    a layer runs after its gather, on the caller's current stream.
// Throws:     what the communicator throws.
#pragma once

#include <cstddef>
#include <vector>

#include "common/comm/communicator.hpp"
#include "common/model/model.hpp"
#include "common/optim/flat_model.hpp"

namespace ladder {

class ParameterGather {
 public:
  // From here on, each layer of `model`, whose parameters lie in `flat`, waits for its unit.
  ParameterGather(FlatModel& flat, Model& model, Communicator& comm);
  ParameterGather(const ParameterGather&) = delete;
  ParameterGather& operator=(const ParameterGather&) = delete;

  void start();
  void complete();  // starts, and waits for all: for a save, or a forward that not all ranks run

 private:
  void wait_for(std::size_t unit);  // and for all units before it

  FlatModel& flat_;
  Communicator& comm_;
  std::vector<WorkPtr> gathers_;  // by unit
  std::size_t num_done_ = 0;      // of these
};

}  // namespace ladder
