// For the grader: counts what is started and what is waited for, and says what it costs.
//
// Collective, lifetime, and what it refuses: as LockstepCommunicator.
#pragma once

#include <memory>
#include <utility>

#include "common/core/memory_ledger.hpp"
#include "common/testing/lockstep_communicator.hpp"
#include "common/testing/recorded_work.hpp"

namespace ladder::step5 {

class RecordingCommunicator final : public LockstepCommunicator {
 public:
  using LockstepCommunicator::LockstepCommunicator;

  const WorkCounts& counts() const { return *counts_; }

  WorkPtr all_reduce(at::Tensor inout) override {
    return record(LockstepCommunicator::all_reduce(std::move(inout)));
  }
  WorkPtr reduce_scatter(const at::Tensor& full, at::Tensor shard) override {
    return record(LockstepCommunicator::reduce_scatter(full, std::move(shard)));
  }
  WorkPtr all_gather(const at::Tensor& shard, at::Tensor full) override {
    return record(LockstepCommunicator::all_gather(shard, std::move(full)));
  }
  WorkPtr broadcast(at::Tensor inout, int root) override {
    return record(LockstepCommunicator::broadcast(std::move(inout), root));
  }

 private:
  WorkPtr record(WorkPtr work) { return std::make_unique<RecordedWork>(std::move(work), counts_); }

  std::shared_ptr<WorkCounts> counts_ = std::make_shared<WorkCounts>();
};

// What this rank sends and holds from here on.
class Meter {
 public:
  explicit Meter(const Communicator& comm) : comm_(comm), sent_(comm.traffic().bytes_sent()) {
    reset_memory_peaks();
    held_ = read_memory().total_live_bytes;
  }
  std::int64_t sent_bytes() const { return comm_.traffic().bytes_sent() - sent_; }
  std::int64_t most_held_bytes() const { return read_memory().peak_bytes - held_; }

 private:
  const Communicator& comm_;
  std::int64_t sent_ = 0, held_ = 0;
};

}  // namespace ladder::step5
