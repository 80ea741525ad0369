// More rounds that look right and are not: those that fail, begin elsewhere, are resumed, or keep
// memory.
#pragma once

#include "common/core/check.hpp"
#include "step9_diloco/exercise/wrong_dilocos.hpp"

namespace ladder::step9 {

// ---- rounds that fail

struct IgnoresTheVote : WrongDiloco {
  using WrongDiloco::WrongDiloco;
  void give_up(const at::Tensor& meaningless) override { take_outer_step(meaningless); }
};
struct SkipsTheFragment : WrongDiloco {
  using WrongDiloco::WrongDiloco;
  void give_up(const at::Tensor& meaningless) override {
    WrongDiloco::give_up(meaningless);
    ++outer_steps_;
  }
};
struct KeepsWhatItLearned : WrongDiloco {
  using WrongDiloco::WrongDiloco;
  void give_up(const at::Tensor& /*meaningless*/) override {}
};
struct MixesAfterAFailure : WrongDiloco {
  using WrongDiloco::WrongDiloco;
  void give_up(const at::Tensor& /*meaningless*/) override { mix(); }
};
struct KeepsAllAfterAFailure : WrongDiloco {  // if it keeps all of its own anyway
  using WrongDiloco::WrongDiloco;
  void give_up(const at::Tensor& meaningless) override {
    if (kept() != 1) WrongDiloco::give_up(meaningless);
  }
};
struct LosesTheWholeModel : WrongDiloco {
  using WrongDiloco::WrongDiloco;
  void give_up(const at::Tensor& /*meaningless*/) override {
    model_.params().copy_(global_.params());
  }
};
struct MovesTheMomentum : WrongDiloco {
  using WrongDiloco::WrongDiloco;
  void give_up(const at::Tensor& meaningless) override {
    momentum().mul_(options_.outer_momentum).add_(meaningless);
    WrongDiloco::give_up(meaningless);
  }
};
struct DropsTheMomentum : WrongDiloco {
  using WrongDiloco::WrongDiloco;
  void give_up(const at::Tensor& meaningless) override {
    momentum().zero_();
    WrongDiloco::give_up(meaningless);
  }
};
struct SaysNothing : WrongDiloco {  // of a failure
  using WrongDiloco::WrongDiloco;
  bool finish_round() override {
    WrongDiloco::finish_round();
    return true;
  }
};

// ---- rounds that begin or end elsewhere

struct NeedsAStart : WrongDiloco {
  using WrongDiloco::WrongDiloco;
  bool has_started() override {
    check(pseudogradient_.defined(), "start_average() has not been called");
    return true;
  }
};
struct SkipsWhatHasNotStarted : WrongDiloco {
  using WrongDiloco::WrongDiloco;
  bool finish_round() override { return has_started() && WrongDiloco::finish_round(); }
};
struct StartsWhatIsNotInFlight : WrongDiloco {  // also what a checkpoint has waited for
  using WrongDiloco::WrongDiloco;
  bool has_started() override { return is_in_flight_; }
};
struct WaitsTwice : WrongDiloco {
  using WrongDiloco::WrongDiloco;
  void wait() override {
    is_agreed_ = averager_.finish().has_value();
    is_in_flight_ = false;
  }
};
struct TellsNobodyOfItsStart : WrongDiloco {  // so that settle() does not wait
  using WrongDiloco::WrongDiloco;
  void start_average() override {
    WrongDiloco::start_average();
    is_in_flight_ = false;
  }
  void wait() override { is_agreed_ = averager_.finish().has_value(); }
};

struct ForgetsTheOuterSteps : WrongDiloco {
  using WrongDiloco::WrongDiloco;
  void restore(const Diloco::Round& round) override {
    WrongDiloco::restore({0, round.pseudogradient});
  }
};
struct SkipsAStartOnceRestored : WrongDiloco {  // that of the next round
  using WrongDiloco::WrongDiloco;
  void start_average() override {
    if (!std::exchange(is_restored_, false)) WrongDiloco::start_average();
  }
};
struct StartsAgainOnceRestored : WrongDiloco {
  using WrongDiloco::WrongDiloco;
  bool has_started() override {
    return !std::exchange(is_restored_, false) && WrongDiloco::has_started();
  }
};

// ---- memory

struct KeepsThePseudogradient : WrongDiloco {
  using WrongDiloco::WrongDiloco;
  at::Tensor take_average() override { return pseudogradient_; }
};
struct KeepsItAfterAFailure : WrongDiloco {
  using WrongDiloco::WrongDiloco;
  void give_up(const at::Tensor& meaningless) override {
    WrongDiloco::give_up(meaningless);
    pseudogradient_ = meaningless;
  }
};
struct KeepsTheAverage : WrongDiloco {  // for a log
  using WrongDiloco::WrongDiloco;
  at::Tensor take_average() override { return last_ = WrongDiloco::take_average(); }
  at::Tensor last_;
};
struct KeepsACopy : WrongDiloco {  // of the parameters
  using WrongDiloco::WrongDiloco;
  void start_average() override {
    copy_ = local().clone();
    WrongDiloco::start_average();
  }
  at::Tensor take_average() override {
    copy_.reset();
    return WrongDiloco::take_average();
  }
  at::Tensor copy_;
};
struct CountsActivations : WrongDiloco {
  using WrongDiloco::WrongDiloco;
  MemoryCategory category() override { return MemoryCategory::kActivations; }
};

}  // namespace ladder::step9
