// Rounds that look right and are not: each is the right one but for what it overrides.
#pragma once

#include "common/core/check.hpp"
#include "step9_diloco/exercise/right_diloco.hpp"

namespace ladder::step9 {

struct WrongDiloco : RightDiloco {
  using RightDiloco::RightDiloco;
};

struct DilocoNotWritten : WrongDiloco {
  using WrongDiloco::WrongDiloco;
  void start_average() override { not_implemented("step9_diloco: Diloco::start_average()"); }
};

// Right, too, but in other words.
struct AnotherRightDiloco : WrongDiloco {
  using WrongDiloco::WrongDiloco;
  at::Tensor distance() override { return local().to(at::kFloat).sub(global()).neg_(); }
  void step_global(const at::Tensor& g) override {
    momentum().copy_(g + options_.outer_momentum * momentum());
    const at::Tensor d = options_.outer_momentum * momentum() + g;
    global().copy_(global() - d * options_.outer_lr);
  }
  void mix() override {
    if (kept() < 1) local().copy_(kept() > 0 ? global() + kept() * (local() - global()) : global());
  }
};

// ---- what is averaged, and when

struct LocalMinusGlobal : WrongDiloco {
  using WrongDiloco::WrongDiloco;
  at::Tensor distance() override { return local() - global(); }
};
struct AveragesParameters : WrongDiloco {  // the outer optimizer has nothing to do
  using WrongDiloco::WrongDiloco;
  at::Tensor distance() override { return local().clone(); }
  void step_global(const at::Tensor& average) override { global().copy_(average); }
};
struct AveragesTheModel : WrongDiloco {  // and uses its fragment of it
  using WrongDiloco::WrongDiloco;
  at::Tensor distance() override { return global_.params() - model_.params(); }
  void step_global(const at::Tensor& average) override {
    WrongDiloco::step_global(fragment().of(average));
  }
};
struct SubtractsInPlace : WrongDiloco {  // and puts things right at the end
  using WrongDiloco::WrongDiloco;
  at::Tensor distance() override { return local().neg_().add_(global()); }
  void mix() override { local().copy_(global()); }
};
struct WaitsAtOnce : WrongDiloco {
  using WrongDiloco::WrongDiloco;
  void start_average() override {
    WrongDiloco::start_average();
    settle();
  }
};
struct AllAtTheEnd : WrongDiloco {
  using WrongDiloco::WrongDiloco;
  void start_average() override {}
  bool finish_round() override {
    WrongDiloco::start_average();
    return WrongDiloco::finish_round();
  }
};
struct ScalesInFlight : WrongDiloco {
  using WrongDiloco::WrongDiloco;
  void start_average() override {
    WrongDiloco::start_average();
    pseudogradient_.mul_(options_.outer_lr);
  }
};

struct InheritsTheType : WrongDiloco {  // of 16-bit parameters
  using WrongDiloco::WrongDiloco;
  at::Tensor distance() override { return local().neg().add_(global()); }
};

// ---- the outer step

struct StepsTheParameters : WrongDiloco {  // the local ones, which become everybody's
  using WrongDiloco::WrongDiloco;
  void step_global(const at::Tensor& average) override {
    outer_.step(local(), momentum(), average);
    global().copy_(local());
  }
};
struct ForgetsTheMomentum : WrongDiloco {
  using WrongDiloco::WrongDiloco;
  void step_global(const at::Tensor& average) override {
    momentum().zero_();
    WrongDiloco::step_global(average);
  }
};
struct OneMomentum : WrongDiloco {  // for all fragments
  using WrongDiloco::WrongDiloco;
  at::Tensor momentum() override { return velocity_.narrow(0, 0, fragment().numel); }
};
struct AlwaysTheFirstFragment : WrongDiloco {
  using WrongDiloco::WrongDiloco;
  const Fragment& fragment() override { return fragments_[0]; }
};
struct NeverCounts : WrongDiloco {
  using WrongDiloco::WrongDiloco;
  void take_outer_step(const at::Tensor& average) override {
    WrongDiloco::take_outer_step(average);
    --outer_steps_;
  }
};

// ---- the mix

struct MixesFirst : WrongDiloco {  // and takes the result for the global parameters
  using WrongDiloco::WrongDiloco;
  void mix() override {
    WrongDiloco::mix();
    global().copy_(local());
  }
};
struct MixesTheOtherWayRound : WrongDiloco {
  using WrongDiloco::WrongDiloco;
  double kept() override { return 1 - options_.alpha; }
};
struct MixesTheOtherShares : WrongDiloco {  // the other way round, but for 0 and 1
  using WrongDiloco::WrongDiloco;
  double kept() override {
    const bool is_share = options_.alpha > 0 && options_.alpha < 1;
    return is_share ? 1 - options_.alpha : options_.alpha;
  }
};
struct KeepsNothing : WrongDiloco {
  using WrongDiloco::WrongDiloco;
  double kept() override { return 0; }
};
struct KeepsAll : WrongDiloco {
  using WrongDiloco::WrongDiloco;
  double kept() override { return 1; }
};
struct MixesWhateverAlphaIs : WrongDiloco {  // −0 + 0 is 0
  using WrongDiloco::WrongDiloco;
  void mix() override { local().mul_(kept()).add_(global(), 1 - kept()); }
};
struct MixesWithAlpha0 : WrongDiloco {  // 0 · NaN is NaN
  using WrongDiloco::WrongDiloco;
  void mix() override {
    if (kept() < 1) local().mul_(kept()).add_(global(), 1 - kept());
  }
};
struct AddsToZero : WrongDiloco {  // 0 + −0 is 0
  using WrongDiloco::WrongDiloco;
  void mix() override { kept() == 0 ? void(local().zero_().add_(global())) : WrongDiloco::mix(); }
};
struct MixesTheDifference : WrongDiloco {  // which is rounded
  using WrongDiloco::WrongDiloco;
  void mix() override { local().copy_(global() + kept() * (local() - global())); }
};
struct MixesTheModel : WrongDiloco {
  using WrongDiloco::WrongDiloco;
  void mix() override {
    if (kept() < 1) model_.params().mul_(kept()).add_(global_.params(), 1 - kept());
  }
};
struct MixesWhatItHadAtTheStart : WrongDiloco {  // without what it has learned since
  using WrongDiloco::WrongDiloco;
  void start_average() override {
    at_start_ = local().clone();
    WrongDiloco::start_average();
  }
  void mix() override {
    local().copy_(at_start_);
    WrongDiloco::mix();
  }
  at::Tensor at_start_;
};

}  // namespace ladder::step9
