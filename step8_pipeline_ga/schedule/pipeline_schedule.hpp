// Who computes what, and when: pipeline schedules as data.
//
// A model is cut into chunks, neighbors in its list of layers. Stage r of p runs chunk r; with v
// chunks per stage it runs chunks r, r + p, r + 2p, …. A microbatch goes forward through all
// chunks in order and backward in reverse, so a stage that waits for its neighbors is idle: the
// bubble. The schedules differ in how much of it there is, and in how many microbatches a stage
// must remember:
//
//   GPipe         all forwards, then all backwards (Huang et al., arXiv 1811.06965)
//   1F1B          p − r forwards, then one backward and one forward in turn: the same bubble, but
//                 at most p − r microbatches remembered instead of m (Narayanan et al.,
//                 arXiv 2104.04473)
//   interleaved   1F1B with v chunks per stage: the bubble is divided by v (the same, section 2.2).
//                 A round of p microbatches goes through a stage's first chunk, then through its
//                 second, and so on. If p does not divide m, the first rounds are longer
//   zero bubble   ZB-H1: a backward is cut into dgrad and wgrad, and wgrads, which no other stage
//                 waits for, fill the gaps (Qi et al., arXiv 2401.10241, section 2.1)
//
// A plan is a value, the same on every rank. It says everything that a stage does, messages
// included, and in which order, so that the code that executes it knows no schedule by name.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "step8_pipeline_ga/pipeline_options.hpp"

namespace ladder {

enum class ActionKind {
  kForward,
  kBackward,        // dgrad and wgrad in one
  kInputBackward,   // dgrad: the gradient of the chunk's input, which the stage before waits for
  kWeightBackward,  // wgrad: the gradients of its linear layers' weights and biases, for nobody else
  kSendActivation,  // the chunk's output, to the stage of the next chunk
  kRecvActivation,  // the chunk's input, from the stage of the chunk before
  kSendGradient,    // the gradient of the chunk's input, to the stage of the chunk before
  kRecvGradient,    // the gradient of the chunk's output, from the stage of the next chunk
};

struct Action {
  ActionKind kind = ActionKind::kForward;
  int chunk = 0;                // 0 … p·v − 1, always one of the stage's own
  std::int64_t microbatch = 0;  // 0 … m − 1
  auto operator<=>(const Action&) const = default;
};

bool is_message(ActionKind kind);  // false: the stage computes

// The message at its other end: the receive of a send, the send of a receive. Stage
// plan.stage_of(other_end(message).chunk) is where it happens.
Action other_end(const Action& message);

struct PipelinePlan {
  int num_stages = 1;                       // p
  int chunks_per_stage = 1;                 // v
  std::int64_t num_microbatches = 1;        // m
  std::vector<std::vector<Action>> stages;  // what each stage does, in this order

  int num_chunks() const { return num_stages * chunks_per_stage; }
  int stage_of(int chunk) const { return chunk % num_stages; }
  bool operator==(const PipelinePlan&) const = default;
};

// When an action was executed, or would be.
struct TimedAction {
  Action action;
  double begin_s = 0, end_s = 0;  // since a moment that is the same for all stages
};
using Timeline = std::vector<std::vector<TimedAction>>;  // for each stage, in order of time

// Plans one run of the pipeline (a flush). Any num_microbatches from 1 will do. Throws CheckError
// for counts below 1, for several chunks per stage in another schedule than kInterleaved, and for
// several chunks on a single stage, where there is nothing to interleave.
PipelinePlan plan_pipeline(Schedule schedule, int num_stages, std::int64_t num_microbatches,
                           int chunks_per_stage = 1);

// Forwards only, for an evaluation.
PipelinePlan plan_forwards(int num_stages, std::int64_t num_microbatches, int chunks_per_stage = 1);

// "F3", "B3", "I3", "W3", "send activation 3", "receive gradient 3"; with a chunk other than the
// first: "F3.c1".
std::string to_string(const Action& action);
const char* name_of(ActionKind kind);      // "forward", "dgrad", "send activation", …
const char* to_string(Schedule schedule);  // "gpipe", "1f1b", "interleaved", "zero-bubble"

}  // namespace ladder
