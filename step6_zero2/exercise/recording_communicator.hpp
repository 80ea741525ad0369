// For the grader: a slow network, which writes down what is reduce-scattered and waited for.
//
// Slow: test() is never true. Whoever needs a result has to wait for it, so what is on its way at
// any moment is a matter of the answer, not of timing.
//
// Collective, lifetime, and what it refuses: as LockstepCommunicator. Its agreements block, also in
// a hook, but they are none of the answer's waits.
#pragma once

#include <memory>
#include <utility>

#include "common/testing/lockstep_communicator.hpp"
#include "common/testing/recorded_work.hpp"

namespace ladder::step6 {

class RecordingCommunicator final : public LockstepCommunicator {
 public:
  using LockstepCommunicator::LockstepCommunicator;
  const WorkCounts& recording() const { return *recording_; }

  WorkPtr reduce_scatter(const at::Tensor& full, at::Tensor shard) override {
    WorkPtr work = LockstepCommunicator::reduce_scatter(full, std::move(shard));
    return std::make_unique<SlowWork>(std::move(work), recording_);
  }

 private:
  std::shared_ptr<WorkCounts> recording_ = std::make_shared<WorkCounts>();
};

}  // namespace ladder::step6
