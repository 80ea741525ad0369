#include "step0_single_gpu/precision/exercise/grader.hpp"

#include "step0_single_gpu/precision/exercise/grade_scaler.hpp"
#include "step0_single_gpu/precision/exercise/grade_step.hpp"

namespace ladder::loss_scaler {

std::vector<std::string> grade_scaler(const MakeScaler& attempt, Communicator& comm) {
  GradeScaler grade(attempt, comm);
  grade.skips_what_overflows();
  grade.keeps_scalers_apart();
  grade.takes_whatever_is_finite();
  grade.doubles_after_a_window();
  grade.counts_from_the_last_overflow();
  grade.gives_up_at_1();
  grade.stops_growing();
  grade.continues_from_a_checkpoint();
  grade.leaves_other_precisions_alone();
  return grade.faults();
}

std::vector<std::string> grade_step(const ScaledStep& attempt, Communicator& comm) {
  GradeStep grade(attempt, comm);
  grade.unscales_before_clipping();
  grade.unscales_by_the_scale_of_the_gradients();
  grade.skips_on_all_ranks_or_none();
  grade.steps_if_the_scaler_accepts();
  grade.gives_adamw_its_gradients_too();
  grade.moves_the_schedule_by_steps_taken();
  grade.ends_on_all_ranks();
  return grade.faults();
}

std::vector<std::string> grade(const MakeScaler& scaler, const ScaledStep& step,
                               Communicator& comm) {
  std::vector<std::string> faults = grade_scaler(scaler, comm);
  if (faults.empty()) return grade_step(step, comm);
  faults.push_back("part 2, scaled_step.cpp, will be graded once part 1 is right");
  return faults;
}

}  // namespace ladder::loss_scaler
