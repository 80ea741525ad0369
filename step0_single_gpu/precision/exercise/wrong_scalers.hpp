// Loss scalers that look right and are not: each is the right one but for what it overrides.
#pragma once

#include <algorithm>

#include "step0_single_gpu/precision/exercise/right_scaler.hpp"

namespace ladder::loss_scaler {

struct WrongScaler : RightScaler {
  using RightScaler::RightScaler;
};

struct ScalerNotWritten : WrongScaler {
  using WrongScaler::WrongScaler;
  bool is_on() override { not_implemented("loss_scaler: LossScaler::accepts()"); }
};

// Right, too, but in other words.
struct AnotherRightScaler : WrongScaler {
  using WrongScaler::WrongScaler;
  bool overflows(double norm) override { return norm * 0 != 0; }
  bool is_hopeless() override { return state_.scale / 2 < 1; }
  void shrink() override { state_.scale *= 0.5; }
  bool has_window_passed() override { return state_.good_steps / options_->window > 0; }
};

// ---- an overflow

struct KeepsItsScale : WrongScaler {
  using WrongScaler::WrongScaler;
  void shrink() override {}
};
struct StartsOver : WrongScaler {  // at half the initial scale
  using WrongScaler::WrongScaler;
  void shrink() override { state_.scale = options_->initial / 2; }
};
struct MissesInfinity : WrongScaler {
  using WrongScaler::WrongScaler;
  bool overflows(double norm) override { return std::isnan(norm); }
};
struct MissesNotANumber : WrongScaler {
  using WrongScaler::WrongScaler;
  bool overflows(double norm) override { return std::isinf(norm); }
};
struct TakesLargeForInfinite : WrongScaler {
  using WrongScaler::WrongScaler;
  bool overflows(double norm) override { return !(norm <= 65504); }
};
struct CountsNoSkips : WrongScaler {
  using WrongScaler::WrongScaler;
  void count_skip() override {}
};
struct CountsSkipsInARow : WrongScaler {
  using WrongScaler::WrongScaler;
  void count_good_step() override {
    WrongScaler::count_good_step();
    state_.skipped_steps = 0;
  }
};
struct SkipsOneMoreStep : WrongScaler {  // after an overflow
  using WrongScaler::WrongScaler;
  bool accepts(double grad_norm) override {
    return WrongScaler::accepts(grad_norm) && (state_.skipped_steps == 0 || state_.good_steps != 1);
  }
};

// ---- good steps

struct RemembersGoodSteps : WrongScaler {  // from before an overflow
  using WrongScaler::WrongScaler;
  void forget_good_steps() override {}
};
struct CountsASkippedStepAsGood : WrongScaler {  // the first of the next run
  using WrongScaler::WrongScaler;
  void forget_good_steps() override { state_.good_steps = 1; }
};
struct WaitsOneStepLonger : WrongScaler {
  using WrongScaler::WrongScaler;
  bool has_window_passed() override { return state_.good_steps == options_->window + 1; }
};
struct WaitsOneStepLess : WrongScaler {
  using WrongScaler::WrongScaler;
  bool has_window_passed() override {
    return state_.good_steps == std::max<std::int64_t>(1, options_->window - 1);
  }
};
struct MissesASmallerWindow : WrongScaler {  // after a resume with more good steps than that
  using WrongScaler::WrongScaler;
  bool has_window_passed() override { return state_.good_steps == options_->window; }
};
struct DoublesAtAMultiple : WrongScaler {  // of the window: a smaller one may have none next
  using WrongScaler::WrongScaler;
  bool has_window_passed() override { return state_.good_steps % options_->window == 0; }
};
struct DoublesInEveryLaterStep : WrongScaler {
  using WrongScaler::WrongScaler;
  void begin_window() override {}
};
struct GrowsToInfinity : WrongScaler {
  using WrongScaler::WrongScaler;
  bool may_grow() override { return true; }
};
struct CountsOnAtTheLargest : WrongScaler {  // scale
  using WrongScaler::WrongScaler;
  void begin_window() override {
    if (may_grow()) state_.good_steps = 0;
  }
};
struct CountsForAllScalers : WrongScaler {  // in a static variable
  using WrongScaler::WrongScaler;
  void forget_good_steps() override { state_.good_steps = good_steps_ = 0; }
  void count_good_step() override { state_.good_steps = ++good_steps_; }
  void begin_window() override { state_.good_steps = good_steps_ = 0; }
  void restore(const LossScaleState& state) override {
    WrongScaler::restore(state);
    good_steps_ = state.good_steps;
  }
  inline static std::int64_t good_steps_ = 0;
};

// ---- a scale of 1

struct SkipsForever : WrongScaler {
  using WrongScaler::WrongScaler;
  bool is_hopeless() override { return false; }
  void shrink() override { state_.scale = std::max(1.0, state_.scale / 2); }
};
struct StaysAt1 : WrongScaler {
  using WrongScaler::WrongScaler;
  bool may_grow() override { return state_.scale > 1 && WrongScaler::may_grow(); }
};
struct GivesUpAfterTenSkips : WrongScaler {
  using WrongScaler::WrongScaler;
  bool is_hopeless() override { return state_.skipped_steps == 10 || WrongScaler::is_hopeless(); }
};
struct GivesUpTooEarly : WrongScaler {
  using WrongScaler::WrongScaler;
  bool is_hopeless() override { return state_.scale <= 2; }
};
struct GivesUpOnInfinityOnly : WrongScaler {
  using WrongScaler::WrongScaler;
  bool overflows(double norm) override { return (is_nan_ = std::isnan(norm)) || std::isinf(norm); }
  bool is_hopeless() override { return !is_nan_ && WrongScaler::is_hopeless(); }
  bool is_nan_ = false;
};
struct HasNoAdvice : WrongScaler {
  using WrongScaler::WrongScaler;
  void give_up() override { throw CheckError("overflow"); }
};

// ---- checkpoints, and other precisions

struct RestoresNoScale : WrongScaler {
  using WrongScaler::WrongScaler;
  void restore(const LossScaleState& state) override {
    const double initial = state_.scale;
    state_ = state;
    state_.scale = initial;
  }
};
struct RestoresTheScaleOnly : WrongScaler {
  using WrongScaler::WrongScaler;
  void restore(const LossScaleState& state) override { state_.scale = state.scale; }
};
struct CountsOutsideItsState : WrongScaler {  // so that a checkpoint does not hold the count
  using WrongScaler::WrongScaler;
  void forget_good_steps() override { state_.good_steps = good_steps_ = 0; }
  void count_good_step() override {
    ++state_.good_steps;
    ++good_steps_;
  }
  bool has_window_passed() override { return good_steps_ == options_->window; }
  void begin_window() override { state_.good_steps = good_steps_ = 0; }
  std::int64_t good_steps_ = 0;
};
struct IsAlwaysOn : WrongScaler {
  using WrongScaler::WrongScaler;
  bool is_on() override { return true; }
  bool is_hopeless() override { return options_ && state_.scale <= 1; }
  bool has_window_passed() override { return options_ && WrongScaler::has_window_passed(); }
};
struct TakesARestoredScaleForItsOwn : IsAlwaysOn {  // in a run that has none
  using IsAlwaysOn::IsAlwaysOn;
  bool is_on() override { return options_ || state_.scale > 1; }
};

}  // namespace ladder::loss_scaler
