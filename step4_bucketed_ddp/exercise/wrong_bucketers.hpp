// Bucketers that look right and are not: each is the right one but for what it overrides.
#pragma once

#include <set>

#include "step4_bucketed_ddp/exercise/right_bucketer.hpp"

namespace ladder::step4 {

struct WrongBucketer : RightBucketer {
  using RightBucketer::RightBucketer;
};

// ---- what is summed

struct Mean : WrongBucketer {
  using WrongBucketer::WrongBucketer;
  void finish() override {
    WrongBucketer::finish();
    grads_.flat().div_(comm_.size());
  }
};
struct OwnCopies : WrongBucketer {
  using WrongBucketer::WrongBucketer;
  WorkPtr reduce(const at::Tensor& bucket) override {
    copies.push_back(bucket.clone());
    return WrongBucketer::reduce(copies.back());
  }
  void finish() override {
    WrongBucketer::finish();
    for (std::size_t b = 0; b < copies.size(); ++b) range(plan_[b]).copy_(copies[b]);
    copies.clear();
  }
  std::vector<at::Tensor> copies;
};
struct KeepsACopy : WrongBucketer {
  using WrongBucketer::WrongBucketer;
  void start(const GradientBucket& bucket) override {
    copies.push_back(range(bucket).clone());
    WrongBucketer::start(bucket);
  }
  void finish() override {
    WrongBucketer::finish();
    copies.clear();
  }
  std::vector<at::Tensor> copies;
};
struct AlwaysAllReduces : WrongBucketer {
  using WrongBucketer::WrongBucketer;
  WorkPtr reduce(const at::Tensor& bucket) override { return comm_.all_reduce(bucket); }
};

// ---- when a bucket leaves

struct LeavesAtFirstGradient : WrongBucketer {
  using WrongBucketer::WrongBucketer;
  bool is_ready(const GradientBucket& bucket) override {
    return std::any_of(bucket.tensors.begin(), bucket.tensors.end(),
                       [&](std::int64_t t) { return is_complete(t); });
  }
};
struct LeavesInFirstBackward : WrongBucketer {
  using WrongBucketer::WrongBucketer;
  bool is_ready(const GradientBucket& bucket) override {
    return std::all_of(bucket.tensors.begin(), bucket.tensors.end(),
                       [&](std::int64_t t) { return received(t) >= 1; });
  }
};
struct EveryMicrobatch : WrongBucketer {
  using WrongBucketer::WrongBucketer;
  void on_gradient(std::int64_t tensor) override {
    const std::int64_t announced = std::exchange(num_microbatches_, num_microbatches_ > 0 ? 1 : 0);
    if (works_.size() == plan_.size()) {  // the microbatch before this one
      finish();
      works_.clear();
      received_.assign(received_.size(), 0);
    }
    WrongBucketer::on_gradient(tensor);
    num_microbatches_ = announced;
  }
  void check_is_complete() override {}
};
struct OnlyInWait : WrongBucketer {
  using WrongBucketer::WrongBucketer;
  void start_ready() override {}
  void finish() override {
    WrongBucketer::start_ready();
    WrongBucketer::finish();
  }
};
struct InReadyOrder : WrongBucketer {
  using WrongBucketer::WrongBucketer;
  void arm(std::int64_t num_microbatches) override {
    WrongBucketer::arm(num_microbatches);
    started.clear();
  }
  void start_ready() override {
    for (const GradientBucket& bucket : plan_) {
      if (is_ready(bucket) && started.insert(bucket.start).second) start(bucket);
    }
  }
  std::set<std::int64_t> started;
};
struct LeavesTheLastOutOnRank0 : WrongBucketer {
  using WrongBucketer::WrongBucketer;
  WorkPtr reduce(const at::Tensor& bucket) override {
    const bool is_left_out = comm_.rank() == 0 && works_.size() + 1 == plan_.size();
    return is_left_out ? std::make_unique<DoneWork>() : WrongBucketer::reduce(bucket);
  }
};
struct OnlyFirstStep : WrongBucketer {
  using WrongBucketer::WrongBucketer;
  void arm(std::int64_t num_microbatches) override {
    WrongBucketer::arm(num_microbatches);
    ++num_steps;
  }
  bool is_ready(const GradientBucket& bucket) override {
    return num_steps == 1 && WrongBucketer::is_ready(bucket);
  }
  int num_steps = 0;
};

// ---- what moves, and what is waited for

struct NeverPolls : WrongBucketer {
  using WrongBucketer::WrongBucketer;
  void poll() override {}
};
struct PollsWhenOneStarts : NeverPolls {
  using NeverPolls::NeverPolls;
  void start(const GradientBucket& bucket) override {
    NeverPolls::start(bucket);
    WrongBucketer::poll();
  }
};
struct NeverWaits : WrongBucketer {
  using WrongBucketer::WrongBucketer;
  void finish() override {}
};
struct WaitsInHook : WrongBucketer {
  using WrongBucketer::WrongBucketer;
  void poll() override {
    WrongBucketer::poll();
    finish();
  }
};

// ---- armed or not

struct AlwaysArmed : WrongBucketer {
  using WrongBucketer::WrongBucketer;
  void on_gradient(std::int64_t tensor) override {
    if (num_microbatches_ == 0) arm(1);
    WrongBucketer::on_gradient(tensor);
  }
};
struct StaysArmed : WrongBucketer {
  using WrongBucketer::WrongBucketer;
  void wait() override {
    const std::int64_t announced = num_microbatches_;
    WrongBucketer::wait();
    num_microbatches_ = announced;
    is_over = true;
  }
  void check_may_arm(std::int64_t num_microbatches) override {
    if (std::exchange(is_over, false)) num_microbatches_ = 0;
    WrongBucketer::check_may_arm(num_microbatches);
  }
  bool is_over = false;
};

// ---- what is refused, and what is not

struct AcceptsTooFew : WrongBucketer {
  using WrongBucketer::WrongBucketer;
  void check_is_complete() override {}
};
// Overlooks a parameter that was left out of one backward and not of the other.
struct AcceptsOneOfTwo : WrongBucketer {
  using WrongBucketer::WrongBucketer;
  void check_is_complete() override {
    const std::vector<std::int64_t> exact = received_;
    for (std::int64_t& count : received_) count = count > 0 ? num_microbatches_ : 0;
    WrongBucketer::check_is_complete();
    received_ = exact;
  }
};
struct NamesTheBucketsFirst : WrongBucketer {
  using WrongBucketer::WrongBucketer;
  void check_is_complete() override {
    for (const GradientBucket& bucket : plan_)
      check(is_ready(bucket), "rank ", comm_.rank(), ": '", name(bucket.tensors[0]), "'");
  }
};
struct NamesNoRank : WrongBucketer {
  using WrongBucketer::WrongBucketer;
  void check_is_complete() override {
    for (const GradientBucket& bucket : plan_) {
      for (const std::int64_t t : bucket.tensors) check(is_complete(t), "'", name(t), "'");
    }
  }
};
struct TripsOverTheFrozen : WrongBucketer {
  using WrongBucketer::WrongBucketer;
  void check_is_complete() override {
    for (std::size_t t = 0; t < received_.size(); ++t) {
      check(received_[t] == num_microbatches_, "rank ", comm_.rank(), ": '",
            name(static_cast<std::int64_t>(t)), "' has had ", received_[t], " of ",
            num_microbatches_, " gradients");
    }
  }
};
struct AcceptsTooMany : WrongBucketer {
  using WrongBucketer::WrongBucketer;
  void check_not_too_many(std::int64_t /*tensor*/) override {}
};
struct ArmsTwice : WrongBucketer {
  using WrongBucketer::WrongBucketer;
  void check_may_arm(std::int64_t num_microbatches) override {
    num_microbatches_ = 0;
    WrongBucketer::check_may_arm(num_microbatches);
  }
};
struct ArmsForNothing : WrongBucketer {
  using WrongBucketer::WrongBucketer;
  void check_may_arm(std::int64_t /*num_microbatches*/) override {
    WrongBucketer::check_may_arm(1);
  }
};
struct WaitsUnarmed : WrongBucketer {
  using WrongBucketer::WrongBucketer;
  void wait() override {
    if (num_microbatches_ > 0) WrongBucketer::wait();
  }
};
struct LeavesItsHooks : WrongBucketer {
  using WrongBucketer::WrongBucketer;
  ~LeavesItsHooks() override { removes_hooks_ = false; }
};

}  // namespace ladder::step4
