// What a schedule costs, without running it: a simulation of any plan, and the formulas for the
// schedules of plan_pipeline(). Each checks the other.
#pragma once

#include <cstdint>
#include <vector>

#include "step8_pipeline_ga/schedule/pipeline_schedule.hpp"

namespace ladder {

// Seconds that one microbatch takes on one chunk; all chunks are equal. Note that a stage cut into
// v chunks computes each of them in 1/v of its time.
struct PipelineCosts {
  double forward_s = 1;
  double backward_s = 2;        // dgrad and wgrad in one
  double input_backward_s = 1;  // the two by themselves
  double weight_backward_s = 1;
  double link_s = 0;  // a message's way, from the end of a computation to where it is needed
};

// Simulates an execution in which a stage computes in the order of the plan, each time as early as
// it can. Messages take none of the stages' time: the sender goes on at once, and the receiver
// waits only before the computation that needs the message. Returns the computations, without the
// messages.
//
// Throws CheckError if the stages wait for one another, which check_plan() finds out too.
Timeline simulate(const PipelinePlan& plan, const PipelineCosts& costs);

// The bubble is the time that stages are idle, all stages together. Two ratios bear its name.
struct TimelineSummary {
  double total_s = 0;           // from the first begin to the last end
  double bubble_per_ideal = 0;  // idle / computing, as in the papers: 1 means half of the total
  double bubble_per_total = 0;  // idle / (idle + computing)
  // For each stage, how many forwards it has to remember at most, each until the whole backward or
  // the wgrad ends: a linear layer's wgrad needs the layer's input. Chunks count one by
  // one. 0 if there are no backwards at all.
  std::vector<std::int64_t> live;
};

// Sums up a simulated or a measured timeline. Messages in it count as idle time.
TimelineSummary summarize(const Timeline& timeline);

// The formulas, for plan_pipeline() with the same arguments and messages that take no time. The
// time without any bubble:
double ideal_s(Schedule schedule, std::int64_t num_microbatches, int chunks_per_stage,
               const PipelineCosts& costs);

// Time with the bubble. Throws CheckError for the zero-bubble schedule with fewer microbatches than
// stages, or with a wgrad that takes longer than a forward or than a dgrad: there is no
// simple formula then.
double formula_s(Schedule schedule, int num_stages, std::int64_t num_microbatches,
                 int chunks_per_stage, const PipelineCosts& costs);

// TimelineSummary::live of a stage.
std::int64_t most_live_microbatches(Schedule schedule, int num_stages,
                                    std::int64_t num_microbatches, int chunks_per_stage, int stage);

}  // namespace ladder
