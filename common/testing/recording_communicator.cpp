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

  ~RecordedWork() override { recording_->num_dropped += has_waited_ ? 0 : 1; }

  bool test() override {
    ++recording_->num_tests;
    if (network_ == Network::kAsItIs) return inner_->test();
    if (network_ == Network::kInstant || ++num_tests_ == kPatience) end();
    return has_ended_;
  }

  void wait() override {
    has_waited_ = true;
    end();
  }

 private:
  static constexpr int kPatience = 1000;

  void end() {
    if (!std::exchange(has_ended_, true)) {
      ++recording_->num_waited_for;
      std::erase(*on_their_way_, inner_);
    }
    inner_->wait();
  }

  std::shared_ptr<Work> inner_;
  Network network_;
  std::shared_ptr<Recording> recording_;
  std::shared_ptr<Works> on_their_way_;
  bool has_ended_ = false, has_waited_ = false;
  int num_tests_ = 0;
};

void RecordingCommunicator::finish() {
  for (const std::shared_ptr<Work>& work : std::exchange(*on_their_way_, {})) work->wait();
  LockstepCommunicator::finish();
}

WorkPtr RecordingCommunicator::start(const Operation& operation) {
  if (operation.is_barrier() || operation.is_message())
    return LockstepCommunicator::start(operation);
  const at::Tensor& tensor = operation.tensor;
  const StartedOperation started = {tensor.storage().unsafeGetStorageImpl(),
                                    tensor.const_data_ptr(), tensor.numel()};
  WorkPtr work = LockstepCommunicator::start(operation);
  recording_->started.push_back(started);
  return std::make_unique<RecordedWork>(std::move(work), *this);
}

}  // namespace ladder
