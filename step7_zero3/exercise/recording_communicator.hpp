// For the grader: writes down what is gathered, and how much of it has been waited for.
//
// Collective, lifetime, and what it refuses: as LockstepCommunicator.
#pragma once

#include <c10/core/Storage.h>

#include <memory>
#include <utility>
#include <vector>

#include "common/testing/lockstep_communicator.hpp"

namespace ladder::step7 {

struct Recording {
  std::vector<const c10::StorageImpl*> gathered;  // in the order in which they were started
  std::int64_t num_waited_for = 0;                // of these, however often
};

class RecordingCommunicator final : public LockstepCommunicator {
 public:
  using LockstepCommunicator::LockstepCommunicator;
  const Recording& recording() const { return *recording_; }
  void forget() { *recording_ = {}; }

  WorkPtr all_gather(const at::Tensor& shard, at::Tensor full) override {
    const c10::StorageImpl* const storage = full.storage().unsafeGetStorageImpl();
    WorkPtr work = LockstepCommunicator::all_gather(shard, std::move(full));
    recording_->gathered.push_back(storage);
    return std::make_unique<RecordedWork>(std::move(work), recording_);
  }

 private:
  class RecordedWork final : public Work {
   public:
    RecordedWork(WorkPtr inner, std::shared_ptr<Recording> recording)
        : inner_(std::move(inner)), recording_(std::move(recording)) {}
    bool test() override { return inner_->test(); }
    void wait() override {
      if (!std::exchange(is_waited_for_, true)) ++recording_->num_waited_for;
      inner_->wait();
    }

   private:
    WorkPtr inner_;
    std::shared_ptr<Recording> recording_;
    bool is_waited_for_ = false;
  };

  std::shared_ptr<Recording> recording_ = std::make_shared<Recording>();
};

}  // namespace ladder::step7
