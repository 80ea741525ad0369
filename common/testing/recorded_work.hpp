// For graders: counts what is done with started operations.
//
// Lifetime: the counts live as long as somebody holds them; a Work may outlive its communicator.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "common/comm/communicator.hpp"

namespace ladder {

struct WorkCounts {
  int num_started = 0;
  int most_on_their_way = 0;
  int num_tests = 0;       // calls of test()
  int num_waited_for = 0;  // operations, however often
  int num_on_their_way() const { return num_started - num_waited_for; }
};

// Passes every call on, and counts it. Counted as started by being made.
class RecordedWork : public Work {
 public:
  RecordedWork(WorkPtr inner, std::shared_ptr<WorkCounts> counts)
      : inner_(std::move(inner)), counts_(std::move(counts)) {
    ++counts_->num_started;
    counts_->most_on_their_way = std::max(counts_->most_on_their_way, counts_->num_on_their_way());
  }
  bool test() override {
    ++counts_->num_tests;
    return inner_->test();
  }
  void wait() override {
    if (!std::exchange(is_waited_for_, true)) ++counts_->num_waited_for;
    inner_->wait();
  }

 protected:
  bool is_waited_for() const { return is_waited_for_; }

 private:
  WorkPtr inner_;
  std::shared_ptr<WorkCounts> counts_;
  bool is_waited_for_ = false;
};

// On a slow network: test() is false until wait() returns, so what is on its way at any moment depends
// on the answer, not on timing. To call test() in a loop is to wait.
class SlowWork final : public RecordedWork {
 public:
  using RecordedWork::RecordedWork;
  bool test() override {
    RecordedWork::test();
    if (++num_tests_ == kPatience) wait();
    return is_waited_for();
  }

 private:
  static constexpr int kPatience = 1000;
  int num_tests_ = 0;
};

}  // namespace ladder
