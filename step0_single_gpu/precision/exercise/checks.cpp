// Judges the loss scaler and, once that is right, the step that uses it. There is no training: every
// trainer, and the oracle, would train with the same scaler.
#include "common/testing/judge_main.hpp"
#include "step0_single_gpu/precision/exercise/scaler_checks.hpp"
#include "step0_single_gpu/precision/exercise/step_checks.hpp"

namespace ladder {

std::vector<std::string> judge_linked(Communicator& comm) {
  loss_scaler::ScalerChecks scaler(comm);
  scaler.skips_what_overflows();
  scaler.keeps_scalers_apart();
  scaler.takes_whatever_is_finite();
  scaler.doubles_after_a_window();
  scaler.counts_from_the_last_overflow();
  scaler.gives_up_at_1();
  scaler.stops_growing();
  scaler.continues_from_a_checkpoint();
  scaler.leaves_other_precisions_alone();
  std::vector<std::string> faults = scaler.faults();
  if (!faults.empty()) {
    faults.push_back("part 2, scaled_step.cpp, will be judged once part 1 is right");
    return faults;
  }
  loss_scaler::StepChecks step(comm);
  step.unscales_before_clipping();
  step.unscales_by_the_scale_of_the_gradients();
  step.skips_on_all_ranks_or_none();
  step.takes_any_finite_gradient();
  step.uses_no_scale_that_is_off();
  step.steps_if_the_scaler_accepts();
  step.gives_adamw_its_gradients_too();
  step.moves_the_schedule_by_steps_taken();
  step.ends_on_all_ranks();
  return step.faults();
}

}  // namespace ladder
