#include "step9_diloco/round_log.hpp"

#include <algorithm>
#include <utility>

#include "common/core/trace.hpp"

namespace ladder {

std::vector<StepRecord> RoundLog::share(bool is_stop_requested, Communicator& comm) {
  const Span span("share the log");
  std::vector<double> sums;
  for (const StepRecord& step : steps_) {
    sums.push_back(step.loss * step.denominator);
    sums.push_back(step.denominator);
    for (const double norm : {step.grad_norm, step.param_norm})
      sums.push_back(static_cast<float>(norm));  // so that their sum in double has no order
  }
  sums.push_back(is_stop_requested ? 1 : 0);
  all_reduce_sum(sums, comm);
  std::vector<StepRecord> of_all = std::exchange(steps_, {});
  for (std::size_t i = 0; i < of_all.size(); ++i) {
    const double* sum = sums.data() + 4 * i;
    of_all[i] = {sum[0] / std::max(sum[1], 1.0), sum[2] / comm.size(), sum[3] / comm.size(),
                 sum[1]};
  }
  if (!of_all.empty()) of_all.back().is_stop_requested = sums.back() > 0;
  return of_all;
}

}  // namespace ladder
