#include "common/train/step_sums.hpp"

#include <array>

namespace ladder {

StepSums all_reduce_sum(const StepSums& own, Communicator& comm, CallSite where) {
  std::array<double, 2> sums = {own.loss, own.is_stop_requested ? 1.0 : 0.0};
  all_reduce_sum(sums, comm, where);
  return {sums[0], sums[1] > 0};
}

}  // namespace ladder
