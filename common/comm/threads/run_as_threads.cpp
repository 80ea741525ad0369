#include "common/comm/threads/run_as_threads.hpp"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/comm/members.hpp"
#include "common/comm/messages/keyed_messages.hpp"
#include "common/comm/messages/message_communicator.hpp"
#include "common/core/check.hpp"
#include "common/core/compute_threads.hpp"

namespace ladder {
namespace {

// Messages between threads of one process: each lies where its sender has it, until its receiver
// has copied it.
//
// Threads: all ranks share a ThreadRanks. A communicator, and what is split from it, belongs to one
// rank, which uses it from one thread at a time.
class ThreadRanks {
 public:
  // Throws CheckError unless there is at least one.
  explicit ThreadRanks(int num_ranks);

  int size() const { return static_cast<int>(ranks_.size()); }
  // The group of all ranks, as this one sees it. Call it once for each.
  std::unique_ptr<Communicator> communicator(int rank);
  // This rank starts nothing more.
  void leave(int rank);
  // This rank has failed. The first reason is the one that others throw.
  void fail(int rank, const std::string& reason);

 private:
  friend class ThreadMessages;
  struct Message {
    CommOp op;
    const std::byte* data;
    std::int64_t bytes;
    int sender;
    std::shared_ptr<bool> is_taken;  // guarded by the mutex
  };
  struct Rank {
    std::condition_variable changed;
    std::int64_t num_changes = 0;  // of what this rank may wait for
    std::int64_t num_seen = 0;
    bool has_left = false;
  };
  // The caller holds the lock.
  void tell(int rank);
  void tell_all();
  std::string name_of(int rank) const;  // "rank 1 of all 3"

  std::mutex mutex_;  // guards the members below
  std::deque<Rank> ranks_;
  std::string failure_;                      // "rank 1 of all 3 has failed: …", once a rank has
  std::map<std::string, Message> messages_;  // on their way
};

struct ThreadGroup final : KeyedGroup {
  std::unique_ptr<Messages> new_messages(CommOp op) override;
  std::shared_ptr<MessageGroup> part(int color, const std::vector<int>& members) override;

  ThreadRanks* ranks = nullptr;
  std::vector<int> members;  // as numbered in the process
};

class ThreadMessages final : public KeyedMessages {
 public:
  ThreadMessages(ThreadGroup& group, CommOp op)
      : KeyedMessages(group, op), ranks_(*group.ranks), group_(group) {}

  void put(const std::string& key, const std::byte* data, std::int64_t bytes, int peer) override {
    const std::lock_guard lock(ranks_.mutex_);
    check(ranks_.failure_.empty(), who(), ranks_.failure_);
    auto is_taken = std::make_shared<bool>(bytes == 0);
    if (bytes > 0) sent_.push_back({is_taken, peer});
    ranks_.messages_[key] = {op_, data, bytes, member(group_.rank), std::move(is_taken)};
    ranks_.tell(member(peer));
  }

  bool try_take(const Awaited& awaited) override {
    std::unique_lock lock(ranks_.mutex_);
    const auto found = ranks_.messages_.find(awaited.key);
    if (found == ranks_.messages_.end()) {
      expect_more_of(awaited.peer);
      return false;
    }
    const ThreadRanks::Message message = std::move(found->second);
    ranks_.messages_.erase(found);
    lock.unlock();
    const std::string problem = difference(awaited, message.op, message.bytes);
    if (!problem.empty()) {
      error_ = problem;
    } else if (message.bytes > 0) {
      std::memcpy(awaited.data, message.data, static_cast<std::size_t>(message.bytes));
    }
    lock.lock();
    *message.is_taken = true;
    ranks_.tell(message.sender);
    return true;
  }

  bool is_all_taken() override {
    const std::lock_guard lock(ranks_.mutex_);
    std::erase_if(sent_, [](const Sent& sent) { return *sent.is_taken; });
    for (const Sent& sent : sent_) expect_more_of(sent.receiver);
    return sent_.empty();
  }

  // What has changed since the last call may already have been seen: then this returns once too
  // often, never too late.
  void idle(double /*waited_s*/) override {
    std::unique_lock lock(ranks_.mutex_);
    ThreadRanks::Rank& own = ranks_.ranks_[static_cast<std::size_t>(member(group_.rank))];
    own.changed.wait(lock, [&] { return own.num_changes != own.num_seen; });
    own.num_seen = own.num_changes;
  }

 private:
  struct Sent {
    std::shared_ptr<bool> is_taken;
    int receiver;
  };
  int member(int rank) const { return group_.members[static_cast<std::size_t>(rank)]; }
  // The caller holds the lock.
  void expect_more_of(int peer) {
    const int rank = member(peer);
    if (!ranks_.failure_.empty()) error_ = ranks_.failure_;
    if (error_.empty() && ranks_.ranks_[static_cast<std::size_t>(rank)].has_left)
      error_ = ranks_.name_of(rank) + " has ended without taking part";
  }

  ThreadRanks& ranks_;
  ThreadGroup& group_;
  std::vector<Sent> sent_;
};

std::unique_ptr<Messages> ThreadGroup::new_messages(CommOp op) {
  return std::make_unique<ThreadMessages>(*this, op);
}

std::shared_ptr<MessageGroup> ThreadGroup::part(int color, const std::vector<int>& of_part) {
  auto part = std::make_shared<ThreadGroup>();
  part->prefix = prefix_of_part(color);
  part->ranks = ranks;
  for (const int old : of_part) part->members.push_back(members[static_cast<std::size_t>(old)]);
  return part;
}

ThreadRanks::ThreadRanks(int num_ranks) : ranks_(static_cast<std::size_t>(std::max(num_ranks, 0))) {
  check(num_ranks >= 1, "a group of ", num_ranks, " threads: it must have at least one");
}

std::unique_ptr<Communicator> ThreadRanks::communicator(int rank) {
  auto group = std::make_shared<ThreadGroup>();
  group->rank = rank;
  group->size = size();
  group->meter = std::make_shared<Traffic>();
  group->ranks = this;
  group->members = world_members(size());
  return std::make_unique<MessageCommunicator>(std::move(group));
}

void ThreadRanks::leave(int rank) {
  const std::lock_guard lock(mutex_);
  ranks_[static_cast<std::size_t>(rank)].has_left = true;
  tell_all();
}

void ThreadRanks::fail(int rank, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = concat(name_of(rank), " has failed: ", reason);
  tell_all();
}

std::string ThreadRanks::name_of(int rank) const {
  return concat("rank ", rank, " of all ", size());
}

void ThreadRanks::tell(int rank) {
  Rank& told = ranks_[static_cast<std::size_t>(rank)];
  ++told.num_changes;
  told.changed.notify_all();
}

void ThreadRanks::tell_all() {
  for (int rank = 0; rank < size(); ++rank) tell(rank);
}

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
