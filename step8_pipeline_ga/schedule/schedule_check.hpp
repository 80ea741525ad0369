// Proves a pipeline plan right before it runs, whichever schedule it came from.
//
// A plan is right if
//   - every stage computes its own chunks only, and nothing twice;
//   - every microbatch goes forward through every chunk, and either through no backward at all (an
//     evaluation) or through each chunk's backward, whole or as dgrad and wgrad;
//   - every action comes after those that it needs: a send after what it sends, a computation
//     after it has received its input, a dgrad after its forward, a wgrad after its dgrad;
//   - a chunk goes backward in the order of its microbatches, wgrads included. They add to the
//     same gradients, and floating-point sums depend on the order;
//   - every send meets its receive, and no stages wait for one another in a cycle. This is proved
//     for the strictest transport: there is one channel between two stages, for both directions,
//     without tags; every send and every receive blocks until its partner does the other. What
//     runs there runs with buffers, too, and with sends in the background.
#pragma once

#include <optional>
#include <string>

#include "step8_pipeline_ga/schedule/pipeline_schedule.hpp"

namespace ladder {

// The first thing found wrong, with the stage and the action, such as
//   "stage 1: F2 comes before receive activation 2, which it needs"
//   "deadlock: stage 0 waits to send activation 1 to stage 1, which waits to send gradient 0 to
//    stage 0"
// and "" for a plan that is right. Actions name their chunk only where stages have several.
std::string what_is_wrong_with(const PipelinePlan& plan);

// Throws CheckError with what_is_wrong_with(plan), if there is anything.
void check_plan(const PipelinePlan& plan);

// The same for a plan without messages: "" if they can be added (what add_messages() does). Such as
//   "deadlock: stage 0 waits for B0 of stage 1, which waits for F2 of stage 0"
std::string what_is_wrong_with_order(const PipelinePlan& plan);

// The computation of another stage whose result this one needs: the forward of the chunk before, or
// the backward or dgrad of the chunk after. None at the model's ends, and for a wgrad.
std::optional<Action> awaited_by(const PipelinePlan& plan, const Action& computation);

}  // namespace ladder
