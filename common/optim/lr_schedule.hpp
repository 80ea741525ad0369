// The learning rate as a function of the step alone, so a resumed run needs no schedule state.
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

// The rate of step s, from 0. For s < warmup_steps it is lr·(s+1)/warmup_steps. Then it falls from
// lr to min_lr, reached at s = num_steps, along half a cosine or a line; kConstant stays at lr.
double learning_rate(const LrOptions& options, std::int64_t step, std::int64_t num_steps);

}  // namespace ladder
