#include "common/optim/lr_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ladder {

double learning_rate(const LrOptions& options, std::int64_t step, std::int64_t num_steps) {
  if (step < options.warmup_steps) {
    return options.lr * static_cast<double>(step + 1) / static_cast<double>(options.warmup_steps);
  }
  if (options.schedule == LrSchedule::kConstant) return options.lr;
  const auto decay_steps =
      static_cast<double>(std::max<std::int64_t>(1, num_steps - options.warmup_steps));
  const double progress =
      std::min(1.0, static_cast<double>(step - options.warmup_steps) / decay_steps);
  const double share = options.schedule == LrSchedule::kLinear
                           ? 1.0 - progress
                           : 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return options.min_lr + (options.lr - options.min_lr) * share;
}

}  // namespace ladder
