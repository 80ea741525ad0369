// What a rank sends while it trains, as data. A step's cost card tells it, once, for all who ask:
//
//   traffic_of()          adds it up; tests compare the sum with the meter, to the byte
//   --dry-run N --json    hands it out; ./ladder plan puts it on a clock
//   tests/sends_test.cpp  compares its order with that of a traced run
#pragma once

#include <cstdint>
#include <vector>

#include "common/comm/machines.hpp"
#include "common/comm/traffic.hpp"
#include "common/core/json.hpp"
#include "common/data/batch_counts.hpp"

namespace ladder {

struct Theory;        // theory.hpp
struct TrainOptions;  // options.hpp

// Optimizer steps that were taken, or are imagined, one after the other, and what they trained on.
struct StepsTaken {
  std::int64_t first = 0, last = 1;  // numbers first + 1 to last
  BatchCounts batches = {};  // of one rank, in all of them together: an epoch ends in a part
  std::int64_t count() const { return last - first; }
};

// The parts of an optimizer step, in their order. All microbatches run forward and backward, layer
// by layer: layer 0 is the embedding, the last one is the head.
enum class StepPhase {
  kStart,           // before the first microbatch
  kBeforeForward,   // of a layer
  kAfterForward,    // of a layer
  kBeforeBackward,  // of a layer
  kAfterBackward,   // of a layer
  kGradients,       // after the last microbatch
  kUpdated,         // after the optimizer
  kEnd,             // after the norm of the parameters
};

const char* to_string(StepPhase phase);  // "start", "before_forward", …

// Until when the rank goes on with its own work.
enum class Wait {
  kAtOnce,      // it waits
  kForWeights,  // the gradients of the layer's weights are computed, unless they are put off
  kForNext,     // the next operation of this kind starts, or all microbatches are done
  kForPhase,    // the phase is over; forward and backward of all microbatches count as one
  kForLayer,    // the layer `needed_by` computes, in the same direction; from kStart on: forward
  kForSteps,    // `needed_by` more optimizer steps have been taken
  kForNothing,  // only others wait for it
};

const char* to_string(Wait wait);  // "at_once", "for_weights", …

// The ranks first, first + stride, first + 2 · stride …, each of them perhaps with its next
// neighbors: in twos, first, first + 1, first + stride, first + stride + 1 …
struct RankGroup {
  int first = 0, stride = 1, size = 0, neighbors = 1;
  int rank(int place) const { return first + place / neighbors * stride + place % neighbors; }
  int place_of(int rank) const {
    if (size == 1) return 0;
    return (rank - first) / stride * neighbors + (rank - first) % stride;
  }
};

struct Send {
  StepPhase phase = StepPhase::kEnd;
  int layer = 0;  // in the phases that have layers
  CommOp operation = CommOp::kAllReduce;
  std::int64_t numel = 0;  // as in traffic_theory.hpp: of the whole tensor that is cut or assembled
  std::int64_t element_bytes = 0;
  Wait wait = Wait::kAtOnce;
  int needed_by = 0;
  RankGroup group = {};    // of a message: the sender and the receiver
  std::int64_t times = 1;  // in the steps that were asked for
  // Elements that a full microbatch would have sent: the last ones of an epoch have fewer rows. In
  // all times together.
  std::int64_t missing_numel = 0;
};

// Lists the sends of some steps, in the order in which a step starts them.
class SendPlan {
 public:
  // `group` takes part in what is sent, but for a Send that names another one.
  SendPlan(const StepsTaken& steps, const RankGroup& group) : steps_(steps), group_(group) {}

  // In a phase that has layers: in the last microbatch. `full_rows` are those that a send is about
  // unless an epoch ends; 0: its size does not depend on rows.
  void each_step(const Send& send, std::int64_t full_rows = 0) {
    add(send, steps_.count(), full_rows);
  }
  void each_microbatch(const Send& send, std::int64_t full_rows = 0) {
    add(send, steps_.batches.microbatches, full_rows);
  }
  void add(Send send, std::int64_t times, std::int64_t full_rows = 0);
  // An all-reduce of doubles, for which the rank waits.
  void sum_of_doubles(StepPhase phase, std::int64_t count, const RankGroup& group = {}) {
    each_step({.phase = phase, .numel = count, .element_bytes = sizeof(double), .group = group});
  }

  const std::vector<Send>& sends() const { return sends_; }

 private:
  StepsTaken steps_;
  RankGroup group_;
  std::vector<Send> sends_;
};

// By ranks of the world, which are on `machines`.
Traffic traffic_of(const std::vector<Send>& sends, int rank, const Machines& machines = {});
Json to_json(const std::vector<Send>& sends, int rank, const Machines& machines = {});  // each once

// One optimizer step with all its microbatches and rows.
StepsTaken full_step(const TrainOptions& options);

// The sum of what these steps send, by ranks on these machines.
Traffic traffic_theory(const Theory& theory, const TrainOptions& options, const StepsTaken& steps,
                       int world_size, int rank, const Machines& machines = {});

}  // namespace ladder
