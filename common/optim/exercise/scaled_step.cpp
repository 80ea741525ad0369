// Exercise, part 2: an optimizer step from scaled gradients.
//
// Write the body as common/optim/exercise/scaled_step.hpp describes it, then run:
//   ./ladder exercise loss_scaler
#include "common/optim/exercise/scaled_step.hpp"

#include "common/core/check.hpp"

namespace ladder {

double scaled_step(const StepParts& /*parts*/, std::int64_t /*step*/, Communicator& /*comm*/) {
  // block_sums(), norm_of() and clip_factor() in common/optim/norm.hpp do the arithmetic, and
  // Optimizer::step() multiplies the gradients by a factor of your choice. all_reduce_sum() in
  // common/comm/communicator.hpp adds up over ranks, and learning_rate() in
  // common/optim/lr_schedule.hpp knows the schedule. In which order must they be called? Squares of
  // norms add up; norms do not. Beware of what accepts() changes.
  not_implemented("loss_scaler: scaled_step()");
}

}  // namespace ladder
