#include "common/comm/messages/operation_engine.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "common/core/timer.hpp"

namespace ladder {
namespace {

class StartedWork final : public Work {
 public:
  StartedWork(std::shared_ptr<OperationEngine> engine, std::shared_ptr<MessageOperation> operation)
      : engine_(std::move(engine)), operation_(std::move(operation)) {}

  bool test() override {
    engine_->advance();  // even if this one is done: other ranks may wait for others
    return operation_->is_done();
  }
  void wait() override { engine_->wait_for(*operation_); }

 private:
  std::shared_ptr<OperationEngine> engine_;
  std::shared_ptr<MessageOperation> operation_;
};

}  // namespace

// Operations remain only when an exception ends the process. MPI may still write to their tensors,
// so they are never freed.
OperationEngine::~OperationEngine() {
  if (in_flight_.empty()) return;
  static std::mutex mutex;  // of the engines of several threads
  static auto* const abandoned = new std::vector<std::shared_ptr<MessageOperation>>;
  const std::lock_guard lock(mutex);
  abandoned->insert(abandoned->end(), in_flight_.begin(), in_flight_.end());
}

WorkPtr OperationEngine::start(std::shared_ptr<MessageOperation> operation) {
  in_flight_.push_back(operation);
  return std::make_unique<StartedWork>(shared_from_this(), std::move(operation));
}

void OperationEngine::advance() {
  for (const auto& operation : in_flight_) operation->advance();
  std::erase_if(in_flight_, [](const auto& operation) { return operation->is_done(); });
}

void OperationEngine::wait_for(MessageOperation& operation) {
  const Timer timer;
  while (!operation.is_done()) {
    advance();
    if (!operation.is_done()) operation.idle(timer.seconds());
  }
}

void OperationEngine::wait_for_free_tag(const MessageGroup& group) {
  const std::int64_t last_user = group.num_started - group.num_tags;
  for (;;) {
    // Older users too: an old collective may still be in flight on another rank when a newer one is
    // done here.
    const auto user =
        std::find_if(in_flight_.begin(), in_flight_.end(), [&](const auto& operation) {
          return &operation->group() == &group && operation->number() >= 0 &&
                 operation->number() <= last_user && !operation->is_done();
        });
    if (user == in_flight_.end()) return;
    const std::shared_ptr<MessageOperation> operation = *user;
    wait_for(*operation);
  }
}

}  // namespace ladder
