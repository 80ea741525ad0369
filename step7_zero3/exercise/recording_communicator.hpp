// For the grader: writes down what is gathered, and how much of it has been waited for.
//
// Collective, lifetime, and what it refuses: as LockstepCommunicator.
#pragma once

#include <c10/core/Storage.h>

#include <memory>
#include <utility>
#include <vector>

#include "common/testing/lockstep_communicator.hpp"
#include "common/testing/recorded_work.hpp"

namespace ladder::step7 {

struct Recording : WorkCounts {
  std::vector<const c10::StorageImpl*> gathered;  // in the order in which they were started
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
  std::shared_ptr<Recording> recording_ = std::make_shared<Recording>();
};

}  // namespace ladder::step7
