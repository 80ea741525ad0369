// The learning rate of every step, as a function of the step alone: a resumed run needs no schedule
// state.
#pragma once

#include <cstdint>

namespace ladder {

enum class LrSchedule { kCosine, kLinear, kConstant };

struct LrOptions {
  LrSchedule schedule = LrSchedule::kCosine;
  double lr = 1e-3;
  double min_lr = 0;  // reached at `num_steps`
  std::int64_t warmup_steps = 0;
};

// Step s counts from 0. s < warmup_steps: lr·(s+1)/warmup_steps. Then from lr down to min_lr, which
// is reached at s = num_steps, along half a cosine or a line; kConstant stays at lr.
double learning_rate(const LrOptions& options, std::int64_t step, std::int64_t num_steps);

}  // namespace ladder
