#include "common/train/layout.hpp"
#include "common/train/sends.hpp"
#include "step3_naive_dp/why_does_it_hang/theory.hpp"

namespace ladder::hang {

std::vector<Send> sends(const TrainOptions& options, const StepsTaken& steps, int world_size,
                        int rank) {
  const int trainer = options.get<HangOptions>().trainer;
  std::vector<Send> sends = step3::sends(options, steps, world_size, rank);
  SendPlan more(steps, {.size = world_size});
  // What trainer 7 adds is sent between the steps, and not counted here.
  if (trainer == 1 || trainer == 6) more.sum_of_doubles(StepPhase::kEnd, 1);
  if (trainer == 5 && world_size > 1) {
    more.each_step({.phase = StepPhase::kUpdated,
                    .operation = CommOp::kSend,
                    .numel = layout_of(options).numel,
                    .element_bytes = options.model.precision.param_bytes()});
    more.each_step({.phase = StepPhase::kUpdated, .operation = CommOp::kRecv});
  }
  sends.insert(sends.end(), more.sends().begin(), more.sends().end());
  return sends;
}

}  // namespace ladder::hang
