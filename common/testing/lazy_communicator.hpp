// For tests: a Communicator that makes no progress by itself, as MPI does not.
//
// A reduction is done once test() has been called `num_tests` times since it started, on whichever
// operation, or in its own wait(). So whoever wants to overlap it with something must call test()
// meanwhile, and num_done_by_tests() and num_waited_for() say whether anybody did: exactly, where a
// clock could only guess. A reduction of at most `eager_bytes` is the inner communicator's.
//
// Lifetime: `inner` outlives this; a Work may outlive it.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "common/comm/forwarding_communicator.hpp"

namespace ladder {

class LazyCommunicator : public ForwardingCommunicator {
 public:
  LazyCommunicator(Communicator& inner, int num_tests, std::size_t eager_bytes = 0)
      : ForwardingCommunicator(inner),
        progress_(std::make_shared<Progress>()),
        eager_bytes_(eager_bytes) {
    progress_->num_needed = num_tests;
  }

  WorkPtr start(const Operation& operation) override {
    WorkPtr work = inner_.start(operation);
    if (!operation.is_sum() || operation.tensor.nbytes() <= eager_bytes_) return work;
    return std::make_unique<LazyWork>(std::move(work), progress_);
  }

  std::int64_t num_started() const { return static_cast<std::int64_t>(progress_->starts.size()); }
  std::int64_t num_done_by_tests() const {  // without their wait()
    return std::count_if(progress_->starts.begin(), progress_->starts.end(),
                         [this](int start) { return progress_->is_done(start); });
  }
  std::int64_t num_waited_for() const { return progress_->num_waited_for; }  // not done before

 private:
  struct Progress {
    int num_needed = 0;
    int num_tests = 0;  // of all operations
    std::int64_t num_waited_for = 0;
    std::vector<int> starts;  // num_tests when each operation started
    bool is_done(int start) const { return num_tests - start >= num_needed; }
  };

  class LazyWork : public Work {
   public:
    LazyWork(WorkPtr inner, std::shared_ptr<Progress> progress)
        : inner_(std::move(inner)), progress_(std::move(progress)), start_(progress_->num_tests) {
      progress_->starts.push_back(start_);
    }
    bool test() override {
      ++progress_->num_tests;
      return progress_->is_done(start_) && inner_->test();
    }
    void wait() override {
      if (!progress_->is_done(start_)) ++progress_->num_waited_for;
      inner_->wait();
    }

   private:
    WorkPtr inner_;
    std::shared_ptr<Progress> progress_;
    int start_;
  };

  std::shared_ptr<Progress> progress_;
  std::size_t eager_bytes_;
};

}  // namespace ladder
