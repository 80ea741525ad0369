// For the judge, part 1: does the scale go up and down when it should? Ranks mean nothing here;
// each examines a scaler of its own.
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/optim/loss_scaler.hpp"
#include "common/testing/part_checks.hpp"

namespace ladder::loss_scaler {

class ScalerChecks : public PartChecks {
 public:
  explicit ScalerChecks(Communicator& comm) : PartChecks("part 1", "loss_scaler.cpp", comm) {}

  void skips_what_overflows() {
    examine_scaler("overflows", [this] {
      for (const double norm : {kInfinity, kNotANumber}) {
        LossScaler scaler(kOptions);
        expect_verdict(scaler, norm, false);
        expect_state(concat("after a norm of ", norm, " at a scale of 1024"), scaler, {512, 0, 1});
        expect_verdict(scaler, norm, false);
        expect_state(concat("after a second norm of ", norm), scaler, {256, 0, 2});
      }
    });
  }

  void keeps_scalers_apart() {
    examine_scaler("two scalers", [this] {
      const LossScaleOptions options = {.initial = 1024, .window = 9};
      LossScaler one(options), other(options);
      take(one, {1, 1});
      take(other, {1, 1});
      expect_state("after 2 good steps each of two scalers: of the second one", other,
                   {1024, 2, 0});
    });
  }

  // A large norm is no overflow: that of many gradients may be larger than each of them could be.
  void takes_whatever_is_finite() {
    examine_scaler("finite norms", [this] {
      LossScaler scaler(LossScaleOptions{.initial = 1024, .window = 9});
      for (const double norm : {0.0, 1.0, 1e5, 1e300}) expect_verdict(scaler, norm, true);
      expect_state("after 4 finite norms, in a window of 9", scaler, {1024, 4, 0});
    });
  }

  void doubles_after_a_window() {
    examine_scaler("growth", [this] {
      for (const std::int64_t window : {3, 1}) {
        LossScaler scaler(LossScaleOptions{.initial = 1024, .window = window});
        for (std::int64_t good = 1; good <= 7; ++good) {
          expect_verdict(scaler, 1.0, true);
          expect_state(concat("after ", good, good == 1 ? " good step" : " good steps in a row",
                              ", with a window of ", window),
                       scaler,
                       {std::ldexp(1024, static_cast<int>(good / window)), good % window, 0});
        }
      }
    });
  }

  void counts_from_the_last_overflow() {
    examine_scaler("good steps around an overflow", [this] {
      LossScaler scaler(kOptions);
      take(scaler, {1, 1, kInfinity, 1, 1});
      expect_state("after good, good, overflow, good, good, with a window of 3", scaler,
                   {512, 2, 1});
      take(scaler, {1});
      expect_state("after good, good, overflow, good, good, good, with a window of 3", scaler,
                   {1024, 0, 1});
    });
  }

  void gives_up_at_1() {
    examine_scaler("an overflow at a scale of 1", [this] {
      LossScaler scaler(LossScaleOptions{.initial = 65536, .window = 3});
      for (int exponent = 16; exponent > 0; --exponent) {
        try {
          take(scaler, {kInfinity});
        } catch (const CheckError& error) {
          return fault(concat(name_, ", an overflow at a scale of ", std::ldexp(1, exponent),
                              ", which can still be halved: '", error.what(),
                              "'; expected a skipped step"));
        }
      }
      expect_state("after 16 overflows from a scale of 65536", scaler, {1, 0, 16});
      take(scaler, {1, 1, 1});
      expect_state("after 3 good steps at a scale of 1, with a window of 3", scaler, {2, 0, 16});
      take(scaler, {kInfinity});
      for (const double norm : {kInfinity, kNotANumber}) {
        try {
          const bool is_accepted = scaler.accepts(norm);
          fault(concat(name_, ", a norm of ", norm, " at a scale of 1: accepts() returns ",
                       is_accepted ? "true" : "false", " and the scale is ", scaler.scale(),
                       "; expected a CheckError, for training would skip steps forever"));
        } catch (const CheckError& error) {
          const std::string message = error.what();
          if (message.find("--lr") == std::string::npos)
            fault(concat(name_, ", a norm of ", norm, " at a scale of 1: the error says '", message,
                         "'; expected some advice: '--lr'"));
        }
      }
      expect_state("after two overflows at a scale of 1, which are errors", scaler, {1, 0, 17});
    });
  }

  void stops_growing() {
    examine_scaler("the largest scale", [this] {
      LossScaler scaler(LossScaleOptions{.initial = 65536, .window = 1});
      for (int step = 0; step < 2000; ++step) expect_verdict(scaler, 0.0, true);
      expect_state("after 2000 steps without any gradient, with a window of 1", scaler,
                   {std::ldexp(1, 30), 0, 0});
    });
  }

  void continues_from_a_checkpoint() {
    examine_scaler("a restored state", [this] {
      LossScaler before(kOptions), after(kOptions);
      take(before, {kInfinity, kInfinity, 1, 1});
      after.restore(before.state());
      expect_state("as restored", after, {256, 2, 2});
      take(after, {1});
      expect_state("restored with 2 good steps of 3, after another good one", after, {512, 0, 2});
      take(after, {kInfinity});
      expect_state("restored with 2 skipped steps, after another overflow", after, {256, 0, 3});
      after.restore({.scale = 256, .good_steps = 4, .skipped_steps = 3});
      take(after, {1});
      expect_state("restored with 4 good steps, with a window of 3, after another good one", after,
                   {512, 0, 3});
      after.restore({.scale = 256, .good_steps = 0, .skipped_steps = 5'000'000'000});
      take(after, {kInfinity});
      expect_state("restored with 5000000000 skipped steps, after another overflow", after,
                   {128, 0, 5'000'000'001});
    });
  }

  void leaves_other_precisions_alone() {
    examine_scaler("without a scale", [this] {
      LossScaler scaler;
      for (const LossScaleState& state : {LossScaleState(), {.scale = 256, .skipped_steps = 2}}) {
        scaler.restore(state);
        for (const double norm : {1.0, kInfinity, kNotANumber}) expect_verdict(scaler, norm, true);
        expect_state("without a scale, after 3 steps", scaler, state);
      }
    });
  }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  static constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();
  static constexpr LossScaleOptions kOptions = {.initial = 1024, .window = 3};

  template <class Check>
  void examine_scaler(const std::string& what, Check check) {
    is_faulty_ = false;
    what_ = what;
    examine_part(what, [&](LockstepCommunicator& /*comm*/) { check(); });
  }

  void take(LossScaler& scaler, const std::vector<double>& norms) {
    for (const double norm : norms) expect_verdict(scaler, norm, std::isfinite(norm));
  }

  // Both say nothing after the first faulty step of a check: one mistake would spoil all later
  // ones.
  void expect_verdict(LossScaler& scaler, double norm, bool wanted) {
    const auto word = [](bool verdict) { return verdict ? "true" : "false"; };
    const bool found = scaler.accepts(norm);
    if (found == wanted || is_faulty_) return;
    is_faulty_ = true;
    fault(concat(name_, ", ", what_, ": accepts(", norm, ") returns ", word(found), ", not ",
                 word(wanted)));
  }

  void expect_state(const std::string& when, LossScaler& scaler, const LossScaleState& wanted) {
    const LossScaleState found = scaler.state();
    if (found == wanted || is_faulty_) return;
    is_faulty_ = true;
    const std::string prefix = concat(name_, ", ", when, ", ");
    expect(prefix + "the scale", found.scale, wanted.scale);
    expect(prefix + "the number of good steps in a row", found.good_steps, wanted.good_steps);
    expect(prefix + "the number of skipped steps", found.skipped_steps, wanted.skipped_steps);
  }

  std::string what_;        // the running check
  bool is_faulty_ = false;  // it has found something
};

}  // namespace ladder::loss_scaler
