// For the grader: counts what is in flight at once, and waits for what nobody has waited for.
//
// Collective, and what it refuses: as LockstepCommunicator.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "common/core/check.hpp"
#include "common/testing/lockstep_communicator.hpp"

namespace ladder::step3 {

class WatchedCommunicator final : public LockstepCommunicator {
 public:
  using LockstepCommunicator::LockstepCommunicator;

  // Operations that were started and not waited for, at once.
  std::size_t most_in_flight() const { return most_in_flight_; }

  // Throws CheckError as well if something was not waited for.
  void finish() {
    const Works never_waited_for = std::exchange(*in_flight_, {});
    for (const std::shared_ptr<Work>& work : never_waited_for) work->wait();
    LockstepCommunicator::finish();
    check(never_waited_for.empty(), never_waited_for.size(), " operations are never waited for");
  }

  WorkPtr all_reduce(at::Tensor inout) override {
    return watch(LockstepCommunicator::all_reduce(std::move(inout)));
  }
  WorkPtr reduce_scatter(const at::Tensor& full, at::Tensor shard) override {
    return watch(LockstepCommunicator::reduce_scatter(full, std::move(shard)));
  }
  WorkPtr all_gather(const at::Tensor& shard, at::Tensor full) override {
    return watch(LockstepCommunicator::all_gather(shard, std::move(full)));
  }
  WorkPtr broadcast(at::Tensor inout, int root) override {
    return watch(LockstepCommunicator::broadcast(std::move(inout), root));
  }

 private:
  using Works = std::vector<std::shared_ptr<Work>>;

  class WatchedWork final : public Work {
   public:
    WatchedWork(std::shared_ptr<Work> inner, std::shared_ptr<Works> in_flight)
        : inner_(std::move(inner)), in_flight_(std::move(in_flight)) {}
    bool test() override { return inner_->test(); }
    void wait() override {
      std::erase(*in_flight_, inner_);
      inner_->wait();
    }

   private:
    std::shared_ptr<Work> inner_;
    std::shared_ptr<Works> in_flight_;
  };

  WorkPtr watch(std::shared_ptr<Work> work) {
    in_flight_->push_back(work);
    most_in_flight_ = std::max(most_in_flight_, in_flight_->size());
    return std::make_unique<WatchedWork>(std::move(work), in_flight_);
  }

  std::size_t most_in_flight_ = 0;
  std::shared_ptr<Works> in_flight_ = std::make_shared<Works>();  // the operations themselves
};

}  // namespace ladder::step3
