#include "common/comm/threads/run_as_threads.hpp"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/threads/thread_messages.hpp"
#include "common/core/check.hpp"
#include "common/core/compute_threads.hpp"

namespace ladder {
namespace {

std::string message_of(const std::exception& error) {
  const auto* from_torch = dynamic_cast<const c10::Error*>(&error);  // what() has a stack trace
  return from_torch != nullptr ? from_torch->what_without_backtrace() : error.what();
}

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
    const std::string who = concat("rank ", rank_), message = message_of(error);
    return message.starts_with(who) ? message : concat(who, ": ", message);
  }

  std::mutex mutex_;
  int rank_ = 0;
  std::exception_ptr error_;
};

void run_rank(ThreadRanks& ranks, int rank, const std::function<void(Communicator&)>& body,
              int num_compute_threads, FirstFailure& failure) {
  try {
    pthread_setname_np(pthread_self(), concat("rank ", rank).substr(0, 15).c_str());
    set_compute_threads(num_compute_threads);  // of this thread
    body(*ranks.communicator(rank));
    ranks.leave(rank);
  } catch (const std::exception& error) {
    failure.record(rank, std::current_exception());
    ranks.fail(rank, message_of(error));
  } catch (...) {
    failure.record(rank, std::current_exception());
    ranks.fail(rank, "it threw no std::exception");
  }
}

}  // namespace

void run_as_threads(int num_ranks, const std::function<void(Communicator&)>& body,
                    int num_compute_threads) {
  ThreadRanks ranks(num_ranks);
  FirstFailure failure;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    try {
      threads.emplace_back(
          [&, rank] { run_rank(ranks, rank, body, num_compute_threads, failure); });
    } catch (...) {  // the system has no more threads: those that run must not wait for this one
      ranks.fail(rank, "its thread could not be started");
      throw;
    }
  }
  threads.clear();  // joins
  failure.rethrow();
}

}  // namespace ladder
