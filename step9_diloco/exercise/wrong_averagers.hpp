// Averagers that look right and are not: each is the right one but for what it overrides.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include "common/core/check.hpp"
#include "step9_diloco/exercise/right_averager.hpp"

namespace ladder::step9 {

struct WrongAverager : RightAverager {
  using RightAverager::RightAverager;
};

struct AveragerNotWritten : WrongAverager {
  using WrongAverager::WrongAverager;
  WorkPtr start_sum() override { not_implemented("step9_diloco: GroupAverager::start()"); }
};

// Right, too, but in other words.
struct AnotherRightAverager : WrongAverager {
  using WrongAverager::WrongAverager;
  void wait() override {
    while (!sum_->test()) continue;
    values_.copy_(values_ / comm_.size());
  }
  double divisor() override { return 1; }
};

// ---- the number

struct Sums : WrongAverager {
  using WrongAverager::WrongAverager;
  double divisor() override { return 1; }
};
struct AlwaysTwoWorkers : WrongAverager {
  using WrongAverager::WrongAverager;
  double divisor() override { return 2; }
};
struct OnlyTheOthers : WrongAverager {  // as if a worker did not count itself
  using WrongAverager::WrongAverager;
  double divisor() override { return comm_.size() - 1; }
};
struct DividesFirst : WrongAverager {
  using WrongAverager::WrongAverager;
  WorkPtr start_sum() override {
    values_.div_(comm_.size());
    return WrongAverager::start_sum();
  }
  double divisor() override { return 1; }
};
struct MultipliesByTheInverse : WrongAverager {
  using WrongAverager::WrongAverager;
  void forget() override {
    values_.mul_(1.0 / comm_.size());
    WrongAverager::forget();
  }
  double divisor() override { return 1; }
};
struct ReturnsItsRank : WrongAverager {
  using WrongAverager::WrongAverager;
  std::optional<int> count() override { return comm_.rank(); }
};
struct ReturnsNothing : WrongAverager {
  using WrongAverager::WrongAverager;
  std::optional<int> count() override { return std::nullopt; }
};

// ---- when

struct WaitsInStart : WrongAverager {
  using WrongAverager::WrongAverager;
  WorkPtr start_sum() override {
    WorkPtr sum = WrongAverager::start_sum();
    sum->wait();
    return sum;
  }
};
struct StartsInFinish : WrongAverager {
  using WrongAverager::WrongAverager;
  WorkPtr start_sum() override { return nullptr; }
  void wait() override { WrongAverager::start_sum()->wait(); }
};
struct NeverWaits : WrongAverager {
  using WrongAverager::WrongAverager;
  void wait() override {}
};
struct DividesInFlight : WrongAverager {
  using WrongAverager::WrongAverager;
  WorkPtr start_sum() override {
    WorkPtr sum = WrongAverager::start_sum();
    values_.div_(comm_.size());
    return sum;
  }
};
struct WritesInFlight : WrongAverager {  // what the sum overwrites when it arrives
  using WrongAverager::WrongAverager;
  WorkPtr start_sum() override {
    WorkPtr sum = WrongAverager::start_sum();
    values_.zero_();
    return sum;
  }
};

// ---- what is sent

struct SendsACopy : WrongAverager {
  using WrongAverager::WrongAverager;
  WorkPtr start_sum() override {
    copy_ = values_.clone();
    return comm_.all_reduce(copy_);
  }
  void wait() override {
    WrongAverager::wait();
    values_.copy_(copy_);
    copy_.reset();
  }
  at::Tensor copy_;
};
struct SendsDoubles : SendsACopy {
  using SendsACopy::SendsACopy;
  WorkPtr start_sum() override {
    copy_ = values_.to(at::kDouble);
    return comm_.all_reduce(copy_);
  }
};
struct AsksWhoTakesPart : WrongAverager {  // in an all-reduce of its own
  using WrongAverager::WrongAverager;
  std::optional<int> count() override { return static_cast<int>(all_reduce_sum(1.0, comm_)); }
};
struct GathersAll : WrongAverager {  // and adds up by itself
  using WrongAverager::WrongAverager;
  WorkPtr start_sum() override {
    all_ = at::empty({comm_.size(), values_.numel()});
    return comm_.all_gather(values_, all_);
  }
  void wait() override {
    WrongAverager::wait();
    values_.zero_();
    for (int r = 0; r < comm_.size(); ++r) values_.add_(all_[r]);
  }
  at::Tensor all_;
};
struct RankOneSendsNothing : WrongAverager {
  using WrongAverager::WrongAverager;
  WorkPtr start_sum() override {
    if (comm_.rank() == 1) return comm_.all_reduce(at::empty({0}));
    return WrongAverager::start_sum();
  }
};

// ---- what is kept

struct KeepsTheValues : WrongAverager {
  using WrongAverager::WrongAverager;
  void forget() override { sum_.reset(); }
};
struct KeepsTheWork : WrongAverager {
  using WrongAverager::WrongAverager;
  void forget() override { values_.reset(); }
};

}  // namespace ladder::step9
