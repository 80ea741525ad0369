// Messages between threads of one process: each lies where its sender has it, until its receiver
// has copied it.
//
// Threads: all ranks share a ThreadRanks. A communicator, and what is split from it, belongs to one
// rank, which uses it from one thread at a time.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "common/comm/communicator.hpp"

namespace ladder {

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
  // With the lock.
  void tell(int rank);
  void tell_all();
  std::string name_of(int rank) const;  // "rank 1 of all 3"

  std::mutex mutex_;  // guards the members below
  std::deque<Rank> ranks_;
  std::string failure_;                      // "rank 1 of all 3 has failed: …", once a rank has
  std::map<std::string, Message> messages_;  // on their way
};

}  // namespace ladder
