#include "common/comm/store/store_process.hpp"

#include <chrono>
#include <exception>
#include <thread>

#include "common/comm/store/key_value_store.hpp"
#include "common/comm/store/store_communicator.hpp"
#include "common/core/check.hpp"
#include "common/core/timer.hpp"

namespace ladder {

StoreProcess::StoreProcess()
    : point_(torchrun_meeting_point()), exceptions_at_start_(std::uncaught_exceptions()) {
  store_ = std::make_shared<KeyValueStore>(point_.address, point_.port, is_server(),
                                           StoreCommunicator::kTimeoutSeconds);
  const std::string job = concat("ladder/", point_.num_restarts, "/");
  prefix_ = concat(job, store_->add(concat(job, "worlds of ", launched_rank()), 1), "/");
}

StoreProcess::~StoreProcess() {
  if (std::uncaught_exceptions() > exceptions_at_start_) {
    announce_failure();
  } else {
    try {
      leave();
    } catch (const CheckError&) {  // rank 0 has not waited: whoever still needs it will say so
    }
  }
}

std::unique_ptr<Communicator> StoreProcess::communicator() const {
  return StoreCommunicator::create(store_, prefix_, launched_rank(), launched_ranks());
}

void StoreProcess::announce_failure() noexcept {
  try {
    const std::string name = concat("rank ", launched_rank());
    store_->put(StoreCommunicator::failure_key(prefix_), {name.begin(), name.end()});
  } catch (const std::exception&) {  // the others will find that the store does not answer
  }
}

bool StoreProcess::is_server() const {
  return !point_.has_store && launched_rank() == 0;
}

// The server ends with its process.
void StoreProcess::leave() {
  if (point_.has_store) return;
  const std::string key = prefix_ + "left";
  const Timer timer;
  std::int64_t num_left = store_->add(key, 1);
  while (is_server() && num_left < launched_ranks() &&
         timer.seconds() < StoreCommunicator::kTimeoutSeconds &&
         !store_->has(StoreCommunicator::failure_key(prefix_))) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    num_left = store_->add(key, 0);
  }
}

}  // namespace ladder
