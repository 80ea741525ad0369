#include "common/optim/adamw_step.hpp"

#include <cmath>

namespace ladder {

AdamWFactors factors_of(const AdamWStep& step) {
  const auto correction = [&](double beta) {
    return 1 - std::pow(beta, static_cast<double>(step.t));
  };
  AdamWFactors factors;
  factors.grad = static_cast<float>(step.grad_factor);
  factors.kept = static_cast<float>(1 - step.learning_rate * step.weight_decay);
  factors.beta1 = static_cast<float>(step.beta1);
  factors.one_minus_beta1 = static_cast<float>(1 - step.beta1);
  factors.beta2 = static_cast<float>(step.beta2);
  factors.one_minus_beta2 = static_cast<float>(1 - step.beta2);
  factors.step_size = static_cast<float>(step.learning_rate / correction(step.beta1));
  factors.root_of_correction = static_cast<float>(std::sqrt(correction(step.beta2)));
  factors.eps = static_cast<float>(step.eps);
  return factors;
}

}  // namespace ladder
