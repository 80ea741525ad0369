#include "common/comm/run_as_threads.hpp"

#include <ATen/Parallel.h>

#include <exception>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/comm/thread_communicator.hpp"
#include "common/core/check.hpp"

namespace ladder {
namespace {

// The exception of the first rank that failed. The others fail because of it.
class FirstFailure {
 public:
  void record(int rank, std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (error_ != nullptr) return;
    rank_ = rank;
    error_ = error;
  }

  void rethrow() const {  // once all threads have ended
    if (error_ == nullptr) return;
    try {
      std::rethrow_exception(error_);
    } catch (const UsageError& error) {
      throw UsageError(named(error));
    } catch (const std::exception& error) {
      throw CheckError(named(error));
    }
  }

 private:
  std::string named(const std::exception& error) const {
    const std::string who = concat("rank ", rank_);
    const bool says_who = std::string_view(error.what()).starts_with(who);
    return says_who ? error.what() : concat(who, ": ", error.what());
  }

  std::mutex mutex_;
  int rank_ = 0;
  std::exception_ptr error_;
};

void run_rank(ThreadCommunicator& comm, const std::function<void(Communicator&)>& body,
              FirstFailure& failure) {
  try {
    at::set_num_threads(1);
    body(comm);
    comm.leave();
  } catch (const std::exception& error) {
    failure.record(comm.rank(), std::current_exception());
    comm.abort(error.what());
  } catch (...) {
    failure.record(comm.rank(), std::current_exception());
    comm.abort("it threw no std::exception");
  }
}

}  // namespace

void run_as_threads(int num_ranks, const std::function<void(Communicator&)>& body) {
  const auto comms = ThreadCommunicator::create(num_ranks);
  FirstFailure failure;
  std::vector<std::jthread> threads;
  for (const auto& comm : comms) {
    try {
      threads.emplace_back([&] { run_rank(*comm, body, failure); });
    } catch (...) {  // the system has no more threads: those that run must not wait for this one
      comm->abort("its thread could not be started");
      throw;
    }
  }
  threads.clear();  // joins
  failure.rethrow();
}

}  // namespace ladder
