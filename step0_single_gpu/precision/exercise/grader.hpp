// Grades a loss scaler and a step that uses one: the reference, a learner's, or those that are
// known to be wrong.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "step0_single_gpu/precision/exercise/scaled_step.hpp"

namespace ladder::loss_scaler {

// As LossScaler's members.
struct ScalerAttempt {
  std::function<double()> scale;
  std::function<bool(double grad_norm)> accepts;
  std::function<LossScaleState()> state;
  std::function<void(const LossScaleState& state)> restore;
};
// Of a LossScaler, or of anything with these members. The functions keep it alive.
template <class SomeScaler>
ScalerAttempt attempt_of(const std::shared_ptr<SomeScaler>& scaler) {
  return {[scaler] { return scaler->scale(); },
          [scaler](double grad_norm) { return scaler->accepts(grad_norm); },
          [scaler] { return scaler->state(); },
          [scaler](const LossScaleState& state) { scaler->restore(state); }};
}
// As LossScaler's constructors: without options there is no scale.
using MakeScaler = std::function<ScalerAttempt(const std::optional<LossScaleOptions>& options)>;

using ScaledStep =
    std::function<double(const StepParts& parts, std::int64_t step, Communicator& comm)>;

// Say what is wrong, with the value found and the value wanted; nothing if all is right. Each line
// begins with its part, which stops after the first check with a fault.
//
// Collective: the same lines on every rank. Ranks that do not do the same are a fault like any
//             other, not a hang.
std::vector<std::string> grade_scaler(const MakeScaler& attempt, Communicator& comm);  // part 1
// Part 2: with the LossScaler that is linked.
std::vector<std::string> grade_step(const ScaledStep& attempt, Communicator& comm);

// Part 1 and, once that is right, part 2, which depends on it.
std::vector<std::string> grade(const MakeScaler& scaler, const ScaledStep& step,
                               Communicator& comm);

}  // namespace ladder::loss_scaler
