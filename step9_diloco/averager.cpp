#include "step9_diloco/averager.hpp"

#include <utility>

namespace ladder {

struct GroupAverager::State {
  at::Tensor values_;
  WorkPtr sum_;

  Communicator& comm_;

  explicit State(Communicator& comm) : comm_(comm) {}

  void start(at::Tensor values) {
    values_ = std::move(values);
    sum_ = comm_.all_reduce(values_);
  }

  void poll() {
    if (sum_ == nullptr) return;
    sum_->test();
  }

  std::optional<int> finish() {
    sum_->wait();
    sum_.reset();
    std::exchange(values_, {}).div_(comm_.size());
    return comm_.size();
  }
};

GroupAverager::GroupAverager(Communicator& comm) : state_(std::make_unique<State>(comm)) {}

GroupAverager::~GroupAverager() = default;

void GroupAverager::start(at::Tensor values) {
  state_->start(std::move(values));
}

void GroupAverager::poll() {
  state_->poll();
}

std::optional<int> GroupAverager::finish() {
  return state_->finish();
}

}  // namespace ladder
