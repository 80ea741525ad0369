#include "step0_single_gpu/precision/exercise/scaled_step.hpp"

#include <cmath>

#include "common/optim/norm.hpp"

namespace ladder {

double scaled_step(const StepParts& parts, std::int64_t step, Communicator& comm) {
  LossScaler& scaler = parts.scaler;
  const double scale = scaler.scale();  // that of these gradients: accepts() may change it
  const double own_norm = norm_of(block_sums({parts.grads}));
  const double norm = std::sqrt(all_reduce_sum(own_norm * own_norm, comm)) / scale;
  if (!scaler.accepts(norm)) return norm;
  const std::int64_t num_taken = step - scaler.state().skipped_steps;
  parts.optimizer.step(learning_rate(parts.lr, num_taken, parts.num_steps),
                       clip_factor(norm, parts.clip_norm) / scale);
  return norm;
}

}  // namespace ladder
