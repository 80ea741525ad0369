#include "common/testing/recording_communicator.hpp"

#include <algorithm>
#include <utility>

namespace ladder {

class RecordingCommunicator::RecordedWork final : public Work {
 public:
  RecordedWork(std::shared_ptr<Work> inner, const RecordingCommunicator& comm)
      : inner_(std::move(inner)),
        network_(comm.network_),
        recording_(comm.recording_),
        on_their_way_(comm.on_their_way_) {
    on_their_way_->push_back(inner_);
    ++recording_->num_started;
    recording_->most_on_their_way =
        std::max(recording_->most_on_their_way, recording_->num_on_their_way());
  }

  bool test() override {
    ++recording_->num_tests;
    if (network_ == Network::kAsItIs) return inner_->test();
    if (network_ == Network::kInstant || ++num_tests_ == kPatience) wait();
    return is_waited_for_;
  }

  void wait() override {
    if (!std::exchange(is_waited_for_, true)) {
      ++recording_->num_waited_for;
      std::erase(*on_their_way_, inner_);
    }
    inner_->wait();
  }

 private:
  static constexpr int kPatience = 1000;

  std::shared_ptr<Work> inner_;
  Network network_;
  std::shared_ptr<Recording> recording_;
  std::shared_ptr<Works> on_their_way_;
  bool is_waited_for_ = false;
  int num_tests_ = 0;
};

StartedOperation RecordingCommunicator::describe(const at::Tensor& tensor) const {
  return {tensor.storage().unsafeGetStorageImpl(), tensor.const_data_ptr(), tensor.numel(),
          keeps_contents_ ? tensor.clone() : at::Tensor()};
}

WorkPtr RecordingCommunicator::record(CommOp op, StartedOperation operation, WorkPtr work) {
  if (only_ && *only_ != op) return work;
  recording_->started.push_back(std::move(operation));
  return std::make_unique<RecordedWork>(std::move(work), *this);
}

void RecordingCommunicator::finish() {
  for (const std::shared_ptr<Work>& work : std::exchange(*on_their_way_, {})) work->wait();
  LockstepCommunicator::finish();
}

WorkPtr RecordingCommunicator::all_reduce(at::Tensor inout) {
  StartedOperation operation = describe(inout);
  return record(CommOp::kAllReduce, std::move(operation),
                LockstepCommunicator::all_reduce(std::move(inout)));
}

WorkPtr RecordingCommunicator::reduce_scatter(const at::Tensor& full, at::Tensor shard) {
  StartedOperation operation = describe(full);
  return record(CommOp::kReduceScatter, std::move(operation),
                LockstepCommunicator::reduce_scatter(full, std::move(shard)));
}

WorkPtr RecordingCommunicator::all_gather(const at::Tensor& shard, at::Tensor full) {
  StartedOperation operation = describe(full);
  return record(CommOp::kAllGather, std::move(operation),
                LockstepCommunicator::all_gather(shard, std::move(full)));
}

WorkPtr RecordingCommunicator::broadcast(at::Tensor inout, int root) {
  StartedOperation operation = describe(inout);
  return record(CommOp::kBroadcast, std::move(operation),
                LockstepCommunicator::broadcast(std::move(inout), root));
}

}  // namespace ladder
