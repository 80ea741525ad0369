// Grades an accumulate_gradients(): the reference, a learner's, or one that is known to be wrong.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "step0_single_gpu/accumulate_gradients.hpp"

namespace ladder::step0 {

using AccumulateGradients = std::function<double(const LossSum& loss_sum, const Microbatches& batch,
                                                 double num_targets, double loss_scale)>;

// Says what is wrong, a line each, with the value found and the value wanted; nothing if all is
// right.
std::vector<std::string> grade(const AccumulateGradients& attempt);

}  // namespace ladder::step0
