// How long an optimizer step takes: what a trainer says that it sends, on a clock instead of a
// machine.
//
// Each send of a rank (sends.hpp) begins in a phase of the step, perhaps at a layer, and the rank
// waits for it at once or later. All replicas do the same at the same time, so one is enough; of a
// pipeline, all its stages run, each in the order of its schedule. A rank has a processor that
// computes, and two links (link.hpp), each of which serves one operation after the other.
//
//   ladder_clock reads facts and speeds, for ./ladder plan; the site's figures draw the spans.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/comm/link.hpp"
#include "common/comm/traffic.hpp"
#include "common/core/json.hpp"
#include "common/train/sends.hpp"

namespace ladder {

// A send, and what it is in messages and bytes of this rank.
struct PlannedSend {
  Send send;
  OpTraffic traffic;
  LinksUse links;
};

// What a rank computes next: forward ('F'), backward ('B'), or of backward the half that makes
// gradients of inputs ('I') or of weights ('W').
struct ClockAction {
  char kind = 'F';
  std::size_t chunk = 0;
  std::int64_t microbatch = 0;
};

struct RankPlan {
  int rank = 0;
  std::int64_t in_steps = 1;  // the sends are those of so many optimizer steps
  std::vector<PlannedSend> sends;
  double updated = 0, normed = 0;  // elements per step
  std::vector<ClockAction> order;
};

// A step, of all ranks of one replica.
struct StepPlan {
  std::string step;
  std::int64_t microbatches = 1;
  int tensor_ranks = 1;                          // owners of each layer's parts
  std::vector<std::vector<std::size_t>> chunks;  // layers, in the order of forward
  std::vector<RankPlan> ranks;
};

// From what --dry-run N --json says. Throws CheckError naming what is missing.
StepPlan step_plan_of(const Json& facts);

// What was measured, or said, of a rank's computations and of its transport.
struct ComputeSpeed {
  std::vector<double> forward_s, backward_s;     // of a microbatch, by layer
  double update_s = 0;                           // the optimizer, for each element that a rank owns
  double norm_s = 0;                             // reading an element once, for a norm
  double rest_s = 0;                             // of a step: reading data, logging
  double call_s = 0, message_s = 0, byte_s = 0;  // of the processor, for what is sent
  double sharing = 1;  // threads of all ranks per core of the machine, if there are more of them
};

// Of a rank that sustains so many 10^12 operations, and reads so many 10^9 bytes of memory, per second.
ComputeSpeed said_speed(const Json& facts, double tflops, double gbytes);

struct Estimate {
  double step_s = 0;
  double waiting_s = 0;  // of it: for links, for other ranks
};

// What happened on the clock, for a picture.
struct ClockSpan {
  enum Lane { kComputing, kInside, kOutside };  // the processor, and the links
  int rank = 0;
  Lane lane = kComputing;
  double begin_s = 0, end_s = 0;
  std::string what;  // "forward", "backward", "update", "norm"; of a link, the operation's name
  int layer = -1;
  std::int64_t microbatch = 0, bytes = 0;
};

// Throws CheckError if, by its plan, a step never ends. `spans`, if given, gets what happened.
Estimate estimate(const StepPlan& plan, const ComputeSpeed& speed, const Links& links,
                  std::vector<ClockSpan>* spans = nullptr);

}  // namespace ladder
