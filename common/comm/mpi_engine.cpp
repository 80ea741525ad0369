#include "common/comm/mpi_engine.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace ladder {
namespace {

class MpiWork final : public Work {
 public:
  MpiWork(std::shared_ptr<MpiEngine> engine, std::shared_ptr<MpiOperation> operation)
      : engine_(std::move(engine)), operation_(std::move(operation)) {}

  bool test() override {
    engine_->advance();  // even if this one is done: other ranks may wait for others
    return operation_->is_done();
  }
  void wait() override { engine_->wait_for(*operation_); }

 private:
  std::shared_ptr<MpiEngine> engine_;
  std::shared_ptr<MpiOperation> operation_;
};

}  // namespace

// Operations remain only when an exception ends the process. MPI may still write to their tensors,
// so they are never freed.
MpiEngine::~MpiEngine() {
  static auto* const abandoned = new std::vector<std::shared_ptr<MpiOperation>>;
  abandoned->insert(abandoned->end(), in_flight_.begin(), in_flight_.end());
}

WorkPtr MpiEngine::start(std::shared_ptr<MpiOperation> operation) {
  in_flight_.push_back(operation);
  return std::make_unique<MpiWork>(shared_from_this(), std::move(operation));
}

void MpiEngine::advance() {
  for (const auto& operation : in_flight_) operation->advance();
  std::erase_if(in_flight_, [](const auto& operation) { return operation->is_done(); });
}

void MpiEngine::wait_for(const MpiOperation& operation) {
  while (!operation.is_done()) {
    advance();
    // With more ranks than cores, the rank that this one waits for needs the core.
    if (!operation.is_done()) std::this_thread::yield();
  }
}

void MpiEngine::wait_for_free_tag(const MpiGroup& group) {
  const std::int64_t last_user = group.num_started - group.limits.num_tags;
  for (;;) {
    // Older users too: an old collective may still be in flight on another rank when a newer one is
    // done here.
    const auto user =
        std::find_if(in_flight_.begin(), in_flight_.end(), [&](const auto& operation) {
          return &operation->group() == &group && operation->number() >= 0 &&
                 operation->number() <= last_user && !operation->is_done();
        });
    if (user == in_flight_.end()) return;
    const std::shared_ptr<MpiOperation> operation = *user;
    wait_for(*operation);
  }
}

}  // namespace ladder
