// One step of AdamW: its settings, and the numbers that a kernel makes of them.
#pragma once

#include <cstdint>

namespace ladder {

struct AdamWStep {
  double learning_rate = 0;
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double weight_decay = 0;
  std::int64_t t = 1;      // the number of the step, counted from 1
  double grad_factor = 1;  // of the gradients, once they are fp32
};

struct AdamWFactors {  // of one step, all in fp32
  float grad = 1;      // of the gradient
  float kept = 1;      // of the parameter, after weight decay: 1 − lr·weight_decay
  float beta1 = 0, one_minus_beta1 = 0;
  float beta2 = 0, one_minus_beta2 = 0;
  float step_size = 0;           // lr / (1 − β1ᵗ)
  float root_of_correction = 1;  // √(1 − β2ᵗ)
  float eps = 0;
};
AdamWFactors factors_of(const AdamWStep& step);

}  // namespace ladder
