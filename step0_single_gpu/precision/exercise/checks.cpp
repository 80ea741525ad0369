// Judges the loss scaler and, once that is right, the step that uses it. There is no training: every
// trainer, and the oracle, would train with the same scaler.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/optim/loss_scaler.hpp"
#include "common/optim/norm.hpp"
#include "common/testing/draw.hpp"
#include "common/testing/examination.hpp"
#include "common/testing/judge_main.hpp"
#include "step0_single_gpu/precision/exercise/scaled_step.hpp"

namespace ladder {
namespace loss_scaler {
namespace {

// Does the scale go up and down when it should? Ranks mean nothing here; each examines a scaler of
// its own.
class ScalerChecks : public Examination {
 public:
  explicit ScalerChecks(Communicator& comm) : Examination(comm, "part 1", "loss_scaler.cpp") {
    say_only_first();
  }

  void skips_what_overflows() {
    for (const double norm : {kInfinity, kNotANumber}) {
      LossScaler scaler(kOptions);
      expect_verdict(scaler, norm, false);
      expect_state(concat("after a norm of ", norm, " at a scale of 1024"), scaler, {512, 0, 1});
      expect_verdict(scaler, norm, false);
      expect_state(concat("after a second norm of ", norm), scaler, {256, 0, 2});
    }
  }

  void keeps_scalers_apart() {
    const LossScaleOptions options = {.initial = 1024, .window = 9};
    LossScaler one(options), other(options);
    take(one, {1, 1});
    take(other, {1, 1});
    expect_state("after 2 good steps each of two scalers: of the second one", other, {1024, 2, 0});
  }

  // A large norm is no overflow: that of many gradients may be larger than each of them could be.
  void takes_whatever_is_finite() {
    LossScaler scaler(LossScaleOptions{.initial = 1024, .window = 9});
    for (const double norm : {0.0, 1.0, 1e5, 1e300}) expect_verdict(scaler, norm, true);
    expect_state("after 4 finite norms, in a window of 9", scaler, {1024, 4, 0});
  }

  void doubles_after_a_window() {
    for (const std::int64_t window : {3, 1}) {
      LossScaler scaler(LossScaleOptions{.initial = 1024, .window = window});
      for (std::int64_t good = 1; good <= 7; ++good) {
        expect_verdict(scaler, 1.0, true);
        expect_state(concat("after ", good, good == 1 ? " good step" : " good steps in a row",
                            ", with a window of ", window),
                     scaler, {std::ldexp(1024, static_cast<int>(good / window)), good % window, 0});
      }
    }
  }

  void counts_from_the_last_overflow() {
    LossScaler scaler(kOptions);
    take(scaler, {1, 1, kInfinity, 1, 1});
    expect_state("after good, good, overflow, good, good, with a window of 3", scaler, {512, 2, 1});
    take(scaler, {1});
    expect_state("after good, good, overflow, good, good, good, with a window of 3", scaler,
                 {1024, 0, 1});
  }

  void gives_up_at_1() {
    LossScaler scaler(LossScaleOptions{.initial = 65536, .window = 3});
    for (int exponent = 16; exponent > 0; --exponent) {
      try {
        take(scaler, {kInfinity});
      } catch (const CheckError& error) {
        return fault(concat("an overflow at a scale of ", std::ldexp(1, exponent),
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
        fault(concat("a norm of ", norm, " at a scale of 1: accepts() returns ",
                     is_accepted ? "true" : "false", " and the scale is ", scaler.scale(),
                     "; expected a CheckError, for training would skip steps forever"));
      } catch (const CheckError& error) {
        const std::string message = error.what();
        if (message.find("--lr") == std::string::npos)
          fault(concat("a norm of ", norm, " at a scale of 1: the error says '", message,
                       "'; expected some advice: '--lr'"));
      }
    }
    expect_state("after two overflows at a scale of 1, which are errors", scaler, {1, 0, 17});
  }

  void stops_growing() {
    LossScaler scaler(LossScaleOptions{.initial = 65536, .window = 1});
    for (int step = 0; step < 2000; ++step) expect_verdict(scaler, 0.0, true);
    expect_state("after 2000 steps without any gradient, with a window of 1", scaler,
                 {std::ldexp(1, 30), 0, 0});
  }

  void continues_from_a_checkpoint() {
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
  }

  // A whole history of norms, of which one in `one_in` is an overflow, against the rules themselves.
  void follows_a_history(std::int64_t window, std::int64_t one_in, Draw& draw) {
    LossScaler scaler(LossScaleOptions{.initial = std::ldexp(1, 20), .window = window});
    LossScaleState wanted = {.scale = std::ldexp(1, 20)};
    for (int step = 1; step <= 2000; ++step) {
      const bool overflows = draw.number(1, one_in) == 1;
      if (overflows && wanted.scale == 1) continue;
      const double norm = overflows ? (draw.coin() ? kInfinity : kNotANumber)
                                    : std::ldexp(1, static_cast<int>(draw.number(-99, 99)));
      expect_verdict(scaler, norm, !overflows);
      if (overflows) {
        wanted = {wanted.scale / 2, 0, wanted.skipped_steps + 1};
      } else if (++wanted.good_steps == window) {
        wanted = {std::min(2 * wanted.scale, std::ldexp(1, 30)), 0, wanted.skipped_steps};
      }
      if (scaler.state() == wanted) continue;
      return expect_state(concat("after step ", step, " of a long run with a window of ", window),
                          scaler, wanted);
    }
  }

  void leaves_other_precisions_alone() {
    LossScaler scaler;
    for (const LossScaleState& state : {LossScaleState(), {.scale = 256, .skipped_steps = 2}}) {
      scaler.restore(state);
      for (const double norm : {1.0, kInfinity, kNotANumber}) expect_verdict(scaler, norm, true);
      expect_state("without a scale, after 3 steps", scaler, state);
    }
  }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  static constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();
  static constexpr LossScaleOptions kOptions = {.initial = 1024, .window = 3};

  void take(LossScaler& scaler, const std::vector<double>& norms) {
    for (const double norm : norms) expect_verdict(scaler, norm, std::isfinite(norm));
  }

  void expect_verdict(LossScaler& scaler, double norm, bool wanted) {
    const auto word = [](bool verdict) { return verdict ? "true" : "false"; };
    const bool found = scaler.accepts(norm);
    if (found != wanted)
      fault(concat("accepts(", norm, ") returns ", word(found), ", not ", word(wanted)));
  }

  void expect_state(const std::string& when, LossScaler& scaler, const LossScaleState& wanted) {
    const LossScaleState found = scaler.state();
    expect(when + ", the scale", found.scale, wanted.scale);
    expect(when + ", the number of good steps in a row", found.good_steps, wanted.good_steps);
    expect(when + ", the number of skipped steps", found.skipped_steps, wanted.skipped_steps);
  }
};

// Does a step on several ranks use the scale as it should?
//
// Parameters start at zero, and the optimizer is SGD without decay. So minus the parameters after
// one step are the gradients that the optimizer was given, times the learning rate.
class StepChecks : public Examination {
 public:
  explicit StepChecks(Communicator& comm) : Examination(comm, "part 2", "scaled_step.cpp") {}

  // Rank r has r + 1 everywhere.
  void unscales_before_clipping() {
    for (const double clip_norm : {1.0, 100.0, 0.0}) {
      gives_the_optimizer_its_gradients(kScaler, 1024, clip_norm, norm_of_all());
      gives_the_optimizer_its_gradients(LossScaler(), 1, clip_norm, norm_of_all());
    }
  }
  // A limit between the norm of each slice and that of all together: only the whole is too long.
  void clips_by_the_norm_of_all() {
    const double largest = std::sqrt(kNumel) * comm_.size();
    const double clip_norm = (largest + norm_of_all()) / 2;
    gives_the_optimizer_its_gradients(kScaler, 1024, clip_norm, norm_of_all());
  }
  double norm_of_all() const {
    double squares = 0;
    for (int rank = 0; rank < comm_.size(); ++rank) squares += kNumel * (rank + 1) * (rank + 1);
    return std::sqrt(squares);
  }

  // With a window of 1, the scale doubles in every step.
  void unscales_by_the_scale_of_the_gradients(LockstepCommunicator& comm) {
    Subject subject(LossScaler({.initial = 1024, .window = 1}));
    subject.grads.fill_(1024);
    take_step(subject, 0, {.lr = kRateOf1}, comm);
    expect("the gradient that the optimizer uses", -subject.params, at::full({kNumel}, 1.0F));
    expect("the scale after it", subject.scaler.scale(), 2048.0);
  }

  // One rank alone has an overflow, and nobody takes the step.
  void skips_on_all_ranks_or_none() {
    for (const float overflow :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      for (int rank = 0; rank < comm_.size(); ++rank) {
        examine(concat("a gradient of ", overflow, " on rank ", rank, " of ", comm_.size()),
                [&](LockstepCommunicator& comm) { skips(overflow, rank, comm); });
      }
    }
  }

  // fp32 cannot hold the square of the first, so the norm must be a double. The second is no reason
  // to skip the step.
  void takes_any_finite_gradient() {
    for (const float gradient : {1e30F, 0.0F}) {
      examine(concat("gradients of ", gradient), [&](LockstepCommunicator& comm) {
        Subject subject(kScaler);
        subject.grads.fill_(gradient);
        take_step(subject, 0, {.lr = kRateOf1}, comm);
        expect("the number of steps that the optimizer has taken", subject.optimizer.num_steps(),
               std::int64_t{1});
      });
    }
  }

  // bf16 goes on from a checkpoint of fp16, whose scale it keeps but does not use.
  void uses_no_scale_that_is_off() {
    LossScaler off;
    off.restore({.scale = 1024});
    gives_the_optimizer_its_gradients(off, 1, /*clip_norm=*/1, norm_of_all());
  }

  // It is not the step that judges.
  void steps_if_the_scaler_accepts(LockstepCommunicator& comm) {
    Subject subject((LossScaler()));
    subject.grads.fill_(std::nan(""));
    take_step(subject, 0, {}, comm);
    expect("the number of steps that the optimizer has taken", subject.optimizer.num_steps(),
           std::int64_t{1});
  }

  // A linear schedule: 4.5, 9, 9, 8, 7, … for the steps that are taken.
  void moves_the_schedule_by_steps_taken() {
    Settings settings = {.lr = {.lr = 9, .min_lr = 1, .warmup_steps = 2}, .num_steps = 10};
    for (const auto& [name, schedule] : {std::pair{"linear", LrSchedule::kLinear},
                                         {"cosine", LrSchedule::kCosine},
                                         {"constant", LrSchedule::kConstant}}) {
      settings.lr.schedule = schedule;
      examine(concat("a ", name, " schedule, overflows in steps 1, 2 and 4"),
              [&](LockstepCommunicator& comm) {
                Subject subject(kScaler);
                std::int64_t num_taken = 0;
                for (std::int64_t step = 0; step < 8; ++step) {
                  const bool overflows = step == 1 || step == 2 || step == 4;
                  const double rate = rate_of(subject, step, overflows, settings, comm);
                  if (overflows) continue;
                  expect_rate(step, rate, settings, num_taken++);
                }
              });
      examine(concat("a ", name, " schedule, resumed after 8 steps, of which 4 were skipped"),
              [&](LockstepCommunicator& comm) {
                Subject subject(kScaler);
                subject.scaler.restore({.scale = 64, .good_steps = 1, .skipped_steps = 4});
                subject.optimizer.set_num_steps(4);
                const double rate = rate_of(subject, 8, /*overflows=*/false, settings, comm);
                expect_rate(8, rate, settings, 4);
              });
    }
  }

  // SGD would not mind a learning rate that is divided by the scale instead.
  void gives_adamw_its_gradients_too(LockstepCommunicator& comm) {
    Subject subject(kScaler, OptimizerKind::kAdamW), wanted(kScaler, OptimizerKind::kAdamW);
    subject.grads.fill_(1024);
    take_step(subject, 0, {.lr = kRateOf1}, comm);
    wanted.grads.fill_(1);
    wanted.optimizer.step(1);
    expect("a parameter", subject.params, wanted.params);
  }

  // Signs, sizes, a scale and a limit drawn at random; one of several ranks has nothing but zeros. The
  // norm of each slice is a whole number, whose square is exact, however its sum is taken.
  void takes_any_step(Draw& draw) {
    const std::int64_t root = 4 * draw.number(2, 17);  // a slice is a multiple of 16
    const int zero_rank = static_cast<int>(draw.number(0, comm_.size() - 1));
    const bool has_zeros = comm_.size() > 1;
    const double scale = std::ldexp(1, static_cast<int>(draw.number(1, 16)));
    std::vector<double> sizes;
    double squares = 0;
    for (int rank = 0; rank < comm_.size(); ++rank) {
      const auto size = static_cast<double>(draw.number(1, 9));
      sizes.push_back(has_zeros && rank == zero_rank ? 0 : size);
      squares += std::pow(static_cast<double>(root) * sizes.back(), 2);
    }
    const double norm = std::sqrt(squares);
    const double clip_norm = draw.coin() ? norm / static_cast<double>(draw.number(2, 9)) : 0;
    const std::string zeros = has_zeros ? concat("zeros on rank ", zero_rank, ", ") : "";
    const std::string what =
        draw.announce(concat(root * root, " gradients of each rank, ", zeros, "a scale of ", scale,
                             " and clip_norm ", clip_norm));
    at::Tensor wanted = at::zeros({root * root});
    for (std::int64_t i = 0; i < wanted.numel(); ++i) {
      const double size = sizes[static_cast<std::size_t>(comm_.rank())];
      wanted.data_ptr<float>()[i] = static_cast<float>(draw.coin() ? size : -size);
    }
    gives_the_optimizer_its_gradients(LossScaler({.initial = scale, .window = 1000}), scale,
                                      clip_norm, norm, wanted, what);
  }

  void ends_on_all_ranks() {
    const int last = comm_.size() - 1;
    examine(concat("an infinite gradient on rank ", last, " at a scale of 1"),
            [&](LockstepCommunicator& comm) {
              Subject subject(LossScaler({.initial = 1, .window = 3}));
              if (comm.rank() == last) subject.grads[kNumel - 1] = kInfinity;
              expect_error("scaled_step()", {}, [&] { scaled_step(subject.parts({}), 0, comm); });
            });
  }

 private:
  static constexpr std::int64_t kNumel = 16;  // of each rank's slice
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();
  static constexpr LrOptions kRateOf1 = {.schedule = LrSchedule::kConstant, .lr = 1};
  inline static const LossScaler kScaler{{.initial = 1024, .window = 1000}};

  struct Settings {
    double clip_norm = 0;
    LrOptions lr = {};
    std::int64_t num_steps = 1;
  };

  // One rank's slice of a model.
  struct Subject {
    explicit Subject(const LossScaler& the_scaler, OptimizerKind the_kind = OptimizerKind::kSgd,
                     std::int64_t the_numel = kNumel)
        : scaler(the_scaler), kind(the_kind), numel(the_numel) {}
    StepParts parts(const Settings& settings) {
      return {grads, scaler, optimizer, settings.clip_norm, settings.lr, settings.num_steps};
    }

    LossScaler scaler;
    OptimizerKind kind;
    std::int64_t numel;
    at::Tensor params = at::zeros({numel}), grads = at::zeros({numel});
    Optimizer optimizer{{{params, grads}}, numel, {}, {.kind = kind, .weight_decay = 0}};
  };

  double take_step(Subject& subject, std::int64_t step, const Settings& settings,
                   LockstepCommunicator& comm) {
    const std::size_t before = comm.calls().size();
    const double norm = scaled_step(subject.parts(settings), step, comm);
    const std::size_t num_calls = comm.calls().size() - before;
    expect("the number of collectives that scaled_step() calls", num_calls, std::size_t{1});
    if (num_calls == 1)
      expect("what scaled_step() calls", comm.calls().back(),
             std::string("all_reduce of 1 element"));
    return norm;
  }

  void gives_the_optimizer_its_gradients(const LossScaler& scaler, double scale, double clip_norm,
                                         double norm) {
    gives_the_optimizer_its_gradients(scaler, scale, clip_norm, norm,
                                      at::full({kNumel}, comm_.rank() + 1.0F),
                                      concat("a scale of ", scale, " and clip_norm ", clip_norm));
  }
  // `wanted`: this rank's, unscaled and not clipped.
  void gives_the_optimizer_its_gradients(const LossScaler& scaler, double scale, double clip_norm,
                                         double norm, const at::Tensor& wanted,
                                         const std::string& what) {
    examine(what, [&](LockstepCommunicator& comm) {
      Subject subject(scaler, OptimizerKind::kSgd, wanted.numel());
      subject.grads.copy_(wanted * scale);
      const double found = take_step(subject, 0, {.clip_norm = clip_norm, .lr = kRateOf1}, comm);
      expect("the norm that scaled_step() returns", found, norm);
      expect("the gradient that the optimizer uses", -subject.params,
             at::Tensor(wanted).mul_(clip_factor(norm, clip_norm)));
      expect("the scale after the step", subject.scaler.scale(), scale);
    });
  }

  void skips(float overflow, int rank, LockstepCommunicator& comm) {
    Subject subject(kScaler);
    subject.grads.fill_(1024);
    if (comm.rank() == rank) subject.grads[kNumel - 1] = overflow;
    const double norm = take_step(subject, 0, {.clip_norm = 1, .lr = kRateOf1}, comm);
    if (std::isfinite(norm))
      fault(concat("the norm that scaled_step() returns is ", norm, ", not ", overflow));
    expect("the number of steps that the optimizer has taken", subject.optimizer.num_steps(),
           std::int64_t{0});
    expect("a parameter", subject.params, at::zeros({kNumel}));
    expect("the scale of the next step", subject.scaler.scale(), 512.0);
    expect("the number of skipped steps", subject.scaler.state().skipped_steps, std::int64_t{1});
  }

  void expect_rate(std::int64_t step, double found, const Settings& settings,
                   std::int64_t num_taken) {
    const double wanted = learning_rate(settings.lr, num_taken, settings.num_steps);
    expect(concat("the learning rate of step ", step), found, double{static_cast<float>(wanted)});
  }

  // What a step makes of minus the parameters if all gradients are 1. On overflow rank 0 has a NaN.
  double rate_of(Subject& subject, std::int64_t step, bool overflows, const Settings& settings,
                 LockstepCommunicator& comm) {
    subject.params.zero_();
    subject.grads.fill_(subject.scaler.scale());
    if (overflows && comm.rank() == 0) subject.grads.fill_(std::nan(""));
    take_step(subject, step, settings, comm);
    return -subject.params[0].item<double>();
  }
};

}  // namespace
}  // namespace loss_scaler

std::vector<std::string> judge_linked(Communicator& comm) {
  using loss_scaler::ScalerChecks;
  Draw draw(comm);
  ScalerChecks scaler(comm);
  scaler.examine("overflows", &ScalerChecks::skips_what_overflows);
  scaler.examine("two scalers", &ScalerChecks::keeps_scalers_apart);
  scaler.examine("finite norms", &ScalerChecks::takes_whatever_is_finite);
  scaler.examine("growth", &ScalerChecks::doubles_after_a_window);
  scaler.examine("good steps around an overflow", &ScalerChecks::counts_from_the_last_overflow);
  scaler.examine("an overflow at a scale of 1", &ScalerChecks::gives_up_at_1);
  scaler.examine("the largest scale", &ScalerChecks::stops_growing);
  scaler.examine("a restored state", &ScalerChecks::continues_from_a_checkpoint);
  scaler.examine("without a scale", &ScalerChecks::leaves_other_precisions_alone);
  const std::int64_t window = draw.number(10, 30), one_in = draw.number(20, 60);
  scaler.examine(draw.announce(concat("a window of ", window, ", and an overflow in one of ",
                                      one_in, " steps")),
                 [&](Communicator&) { scaler.follows_a_history(window, one_in, draw); });
  std::vector<std::string> faults = scaler.faults();
  if (!faults.empty()) {
    faults.push_back("part 2, scaled_step.cpp, will be judged once part 1 is right");
    return faults;
  }
  loss_scaler::StepChecks step(comm);
  step.unscales_before_clipping();
  step.clips_by_the_norm_of_all();
  step.examine("a step that doubles the scale",
               &loss_scaler::StepChecks::unscales_by_the_scale_of_the_gradients);
  step.skips_on_all_ranks_or_none();
  step.takes_any_finite_gradient();
  step.uses_no_scale_that_is_off();
  step.examine("a gradient of nan without a scale",
               &loss_scaler::StepChecks::steps_if_the_scaler_accepts);
  step.examine("AdamW", &loss_scaler::StepChecks::gives_adamw_its_gradients_too);
  step.moves_the_schedule_by_steps_taken();
  step.ends_on_all_ranks();
  step.takes_any_step(draw);
  return step.faults();
}

}  // namespace ladder
