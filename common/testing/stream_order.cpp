#include "common/testing/stream_order.hpp"

#include <array>
#include <chrono>
#include <deque>
#include <thread>

#include "common/core/check.hpp"
#include "common/core/timer.hpp"
#include "common/testing/time_limit.hpp"

namespace ladder {

struct StreamOrder::Queued {
  Communicator& comm;
  Operation operation;
  std::shared_ptr<Queued> before;  // in its group, if any
  WorkPtr work = {};               // null: not started
  bool is_done = false;
};

class StreamOrder::Streams {
 public:
  explicit Streams(double patience) : patience_s(patience * time_scale()) {}

  void push(std::shared_ptr<Queued> queued) {
    streams_[queued->operation.is_message() ? 1 : 0].push_back(std::move(queued));
    advance();
  }

  void advance() {
    for (auto& stream : streams_) {
      for (; !stream.empty(); stream.pop_front()) {
        Queued& first = *stream.front();
        if (first.before != nullptr && !first.before->is_done) break;
        first.before = nullptr;
        if (first.work == nullptr) first.work = first.comm.start(first.operation);
        if (!first.work->test()) break;
        first.work->wait();
        first.is_done = true;
      }
    }
  }

  const double patience_s;

 private:
  std::array<std::deque<std::shared_ptr<Queued>>, 2> streams_;
};

class StreamOrder::QueuedWork final : public Work {
 public:
  QueuedWork(std::shared_ptr<Streams> streams, std::shared_ptr<Queued> queued)
      : streams_(std::move(streams)), queued_(std::move(queued)) {}

  bool test() override {
    streams_->advance();
    return queued_->is_done;
  }

  void wait() override {
    for (const Timer timer; !test(); std::this_thread::sleep_for(std::chrono::microseconds(20))) {
      const Communicator& comm = queued_->comm;
      check(timer.seconds() < streams_->patience_s, "rank ", comm.rank(), " of ", comm.size(), ": ",
            to_string(queued_->operation.kind),
            queued_->work == nullptr ? " waits behind another operation" : "",
            " is not done after ", streams_->patience_s, " s");
    }
    queued_->work.reset();  // with its scratch memory
    queued_->operation = {};
  }

 private:
  std::shared_ptr<Streams> streams_;
  std::shared_ptr<Queued> queued_;
};

StreamOrder::StreamOrder(Communicator& inner, double patience_s)
    : ForwardingCommunicator(inner), streams_(std::make_shared<Streams>(patience_s)) {}

WorkPtr StreamOrder::start(const Operation& operation) {
  last_ = std::make_shared<Queued>(inner_, operation, last_);
  streams_->push(last_);
  return std::make_unique<QueuedWork>(streams_, last_);
}

std::unique_ptr<Communicator> StreamOrder::split(int color, int key) {
  std::unique_ptr<Communicator> part = inner_.split(color, key);
  if (part == nullptr) return nullptr;
  return std::unique_ptr<Communicator>(new StreamOrder(std::move(part), streams_));
}

}  // namespace ladder
