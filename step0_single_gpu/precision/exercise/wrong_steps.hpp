// Steps from scaled gradients that look right and are not: each is the right one but for what it
// overrides.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "common/core/check.hpp"
#include "step0_single_gpu/precision/exercise/right_step.hpp"

namespace ladder::loss_scaler {

struct StepNotWritten : RightStep {
  double take(const StepParts& /*parts*/, std::int64_t /*step*/, Communicator& /*comm*/) override {
    not_implemented("loss_scaler: scaled_step()");
  }
};

// Right, too, but in other words: unscaled first, and the optimizer knows how many steps it took.
struct AnotherRightStep : RightStep {
  double norm_of_all(const StepParts& parts, Communicator& comm) override {
    parts.grads.div_(scale_);
    return std::sqrt(all_reduce_sum(own_squares(parts), comm));
  }
  void unscale_and_clip(const StepParts& parts, double norm) override {
    const double factor = clip_factor(norm, parts.clip_norm);
    if (factor < 1) parts.grads.mul_(factor);
  }
  std::int64_t num_taken(const StepParts& parts, std::int64_t /*step*/) override {
    return parts.optimizer.num_steps();
  }
};

// ---- scale and clipping

struct UnscalesAfterClipping : RightStep {  // the norm is that of the scaled gradient
  double norm_of_all(const StepParts& parts, Communicator& comm) override {
    return std::sqrt(all_reduce_sum(own_squares(parts), comm));
  }
};
struct ClipsByTheScaledNorm : RightStep {  // and returns the right one
  void unscale_and_clip(const StepParts& parts, double norm) override {
    parts.grads.mul_(clip_factor(norm * scale_, parts.clip_norm) / scale_);
  }
};
struct UnscalesACopy : RightStep {
  void unscale_and_clip(const StepParts& parts, double norm) override {
    const at::Tensor grads = parts.grads / scale_;
    grads.mul_(clip_factor(norm, parts.clip_norm));
  }
};
struct UnscalesOnlyWhatItClips : RightStep {
  void unscale_and_clip(const StepParts& parts, double norm) override {
    if (clip_factor(norm, parts.clip_norm) < 1) RightStep::unscale_and_clip(parts, norm);
  }
};
struct NeverClips : RightStep {
  void unscale_and_clip(const StepParts& parts, double /*norm*/) override {
    parts.grads.div_(scale_);
  }
};
struct AlwaysClips : RightStep {  // makes a short gradient longer
  void unscale_and_clip(const StepParts& parts, double norm) override {
    parts.grads.mul_((parts.clip_norm > 0 ? parts.clip_norm / (norm + 1e-6) : 1) / scale_);
  }
};
struct DividesTheRate : RightStep {  // which AdamW does not take for the gradient's
  void unscale_and_clip(const StepParts& parts, double norm) override {
    parts.grads.mul_(clip_factor(norm, parts.clip_norm));
  }
  double rate(const StepParts& parts, std::int64_t num_taken) override {
    return RightStep::rate(parts, num_taken) / scale_;
  }
};
struct ReturnsTheClippedNorm : RightStep {
  double take(const StepParts& parts, std::int64_t step, Communicator& comm) override {
    const double norm = RightStep::take(parts, step, comm);
    return norm * clip_factor(norm, parts.clip_norm);
  }
};
struct UsesTheNextScale : RightStep {  // which accepts() has just changed
  void unscale_and_clip(const StepParts& parts, double norm) override {
    scale_ = parts.scaler.scale();
    RightStep::unscale_and_clip(parts, norm);
  }
};
struct UndoesTheGrowth : RightStep {  // so that the next scale is this one
  bool may_step(const StepParts& parts, double norm, Communicator& comm) override {
    const LossScaleState before = parts.scaler.state();
    const bool is_accepted = RightStep::may_step(parts, norm, comm);
    if (is_accepted) parts.scaler.restore(before);
    return is_accepted;
  }
};

// ---- all ranks or none

struct DecidesLocally : RightStep {  // by the gradients of its own slice
  bool may_step(const StepParts& parts, double /*norm*/, Communicator& /*comm*/) override {
    return parts.scaler.accepts(std::sqrt(own_squares(parts)));
  }
};
struct TakesItsOwnNorm : RightStep {
  double sum_over_ranks(double squares, Communicator& comm) override {
    all_reduce_sum(squares, comm);
    return squares;
  }
};
struct AddsUpNorms : RightStep {  // instead of their squares
  double norm_of_all(const StepParts& parts, Communicator& comm) override {
    return all_reduce_sum(std::sqrt(own_squares(parts)), comm) / scale_;
  }
};
struct TellsNobody : RightStep {  // no rank hears of another's gradients
  double sum_over_ranks(double squares, Communicator& /*comm*/) override { return squares; }
};
struct AgreesOnceMore : RightStep {  // by a message of its own
  bool may_step(const StepParts& parts, double norm, Communicator& comm) override {
    const bool overflows = all_reduce_sum(std::isfinite(norm) ? 0.0 : 1.0, comm) > 0;
    return parts.scaler.accepts(overflows ? std::nan("") : norm);
  }
};
struct SendsAFlag : RightStep {  // next to the norm
  double sum_over_ranks(double squares, Communicator& comm) override {
    at::Tensor both = at::zeros({2}, at::kDouble);
    both[0] = squares;
    both[1] = std::isfinite(squares) ? 0 : 1;
    comm.all_reduce(both)->wait();
    return both[1].item<double>() > 0 ? std::nan("") : both[0].item<double>();
  }
};
struct TellsOnlyTheScalerOfRank0 : RightStep {
  bool may_step(const StepParts& parts, double norm, Communicator& comm) override {
    return comm.rank() == 0 ? parts.scaler.accepts(norm) : std::isfinite(norm);
  }
};
struct LeavesEarly : RightStep {  // before the others have heard of its overflow
  double take(const StepParts& parts, std::int64_t step, Communicator& comm) override {
    const double own = own_squares(parts);
    if (!std::isfinite(own) && !parts.scaler.accepts(own)) return own;
    return RightStep::take(parts, step, comm);
  }
};

// ---- a skipped step

struct IgnoresTheVerdict : RightStep {
  bool may_step(const StepParts& parts, double norm, Communicator& comm) override {
    RightStep::may_step(parts, norm, comm);
    return true;
  }
};
struct HasAVerdictOfItsOwn : RightStep {  // also where there is no scale
  bool may_step(const StepParts& parts, double norm, Communicator& comm) override {
    return RightStep::may_step(parts, norm, comm) && std::isfinite(norm);
  }
};
struct StepsWithZeros : RightStep {  // weight decay and moments would go on
  double take(const StepParts& parts, std::int64_t step, Communicator& comm) override {
    const double norm = RightStep::take(parts, step, comm);
    if (!std::isfinite(norm)) {
      parts.grads.zero_();
      parts.optimizer.step(parts.lr.lr);
    }
    return norm;
  }
};
struct AsksTwice : RightStep {
  bool may_step(const StepParts& parts, double norm, Communicator& /*comm*/) override {
    return parts.scaler.accepts(norm) && parts.scaler.accepts(norm);
  }
};
struct TellsTheScalerOfOverflowsTwice : RightStep {
  bool may_step(const StepParts& parts, double norm, Communicator& /*comm*/) override {
    return parts.scaler.accepts(norm) || parts.scaler.accepts(norm);
  }
};
struct HidesTheOverflow : RightStep {
  double skipped_norm(double /*norm*/) override { return 0; }
};
struct GoesOnAtAScaleOf1 : RightStep {
  bool may_step(const StepParts& parts, double norm, Communicator& comm) override {
    try {
      return RightStep::may_step(parts, norm, comm);
    } catch (const CheckError&) {
      return false;
    }
  }
};

// ---- the schedule

struct ForgetsTheSkippedSteps : RightStep {
  std::int64_t num_taken(const StepParts& /*parts*/, std::int64_t step) override { return step; }
};
struct CountsStepsFrom1 : RightStep {
  std::int64_t num_taken(const StepParts& parts, std::int64_t step) override {
    return RightStep::num_taken(parts, step) + 1;
  }
};
struct EndsTheScheduleEarly : RightStep {  // by as many steps as were skipped
  double rate(const StepParts& parts, std::int64_t num_taken) override {
    return learning_rate(parts.lr, num_taken, parts.num_steps - parts.scaler.state().skipped_steps);
  }
};
struct KnowsTheWarmupOnly : RightStep {
  double rate(const StepParts& parts, std::int64_t num_taken) override {
    const std::int64_t warmup = parts.lr.warmup_steps;
    return num_taken < warmup ? RightStep::rate(parts, num_taken) : parts.lr.lr;
  }
};
struct AlwaysFallsLinearly : RightStep {
  double rate(const StepParts& parts, std::int64_t num_taken) override {
    LrOptions lr = parts.lr;
    lr.schedule = LrSchedule::kLinear;
    return learning_rate(lr, num_taken, parts.num_steps);
  }
};
struct CountsSkipsItself : RightStep {  // and so knows nothing of those before a resume
  bool may_step(const StepParts& parts, double norm, Communicator& comm) override {
    const bool is_accepted = RightStep::may_step(parts, norm, comm);
    if (&parts.optimizer != optimizer_) num_skipped_ = 0;
    optimizer_ = &parts.optimizer;
    if (!is_accepted) ++num_skipped_;
    return is_accepted;
  }
  std::int64_t num_taken(const StepParts& /*parts*/, std::int64_t step) override {
    return step - num_skipped_;
  }
  const Optimizer* optimizer_ = nullptr;
  std::int64_t num_skipped_ = 0;
};

}  // namespace ladder::loss_scaler
