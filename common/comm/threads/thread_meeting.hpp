// Where the ranks of one operation meet. Each brings its tensors, and the rank that arrives last
// does the work for all of them; the others sleep until it is done.
//
// So an operation that all its ranks have started is done without any of them waiting for it, and
// nothing is copied on the way: the last rank reads and writes the others' tensors, which nobody
// else may touch until then.
//
// Every operation is a meeting: a collective has a seat for each rank of the group, a message one
// for its sender and one for its receiver.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/comm/operation.hpp"

namespace ladder {

class ThreadGroup;

// What all meetings of one process share: a lock, and which ranks have ended.
struct ThreadRanks {
  explicit ThreadRanks(int num_ranks) : has_left(static_cast<std::size_t>(num_ranks)) {}
  std::string name_of(int rank) const;  // "rank 1 of all 3"

  std::mutex mutex;                 // guards the members below, and all seats
  std::condition_variable changed;  // a meeting is over, or a rank has ended
  std::vector<bool> has_left;       // the ranks that will start nothing more
  std::string failure;              // "rank 1 of all 3 has failed: …", once a rank has
};

// What one rank brings to a meeting, and what it takes away.
struct ThreadPart {
  // Does the work of the meeting. The parts are in the order of the seats.
  using Act = std::function<void(std::vector<ThreadPart>& parts)>;

  const char* call = "";  // "all_reduce", …
  Act act;
  int rank = 0;  // in a group of this size
  int size = 1;
  Operation operation = {};
  int color = 0;  // of a split, like the next three
  int key = 0;
  std::shared_ptr<ThreadGroup> part_of_group;  // result: null for a negative color
  int rank_in_part = 0;                        // result
  std::string error;  // result: what this rank is to throw, without rank and operation
};

class ThreadMeeting {
 public:
  // `members` are the ranks, as numbered in the whole process, that have a seat.
  ThreadMeeting(std::shared_ptr<ThreadRanks> ranks, std::vector<int> members);

  // Hold the lock for these two. Nobody may arrive once a rank has failed: throws CheckError.
  void arrive(int seat, ThreadPart part);
  bool is_complete() const { return num_arrived_ == members_.size(); }

  // Without the lock, by the rank whose arrival made it complete. Never throws.
  void act();

  // True, or returns, once the work is done; then a result may be read from the part. Throws
  // CheckError if it is done and this rank's part is wrong, or if it can never be done because a
  // rank has failed, or has left without arriving.
  bool test(int seat);
  void wait(int seat);
  const ThreadPart& part(int seat) const { return parts_[static_cast<std::size_t>(seat)]; }

 private:
  bool is_over(int seat) const;       // with the lock; throws as above
  std::string what_prevents() const;  // with the lock; empty if nothing does

  std::shared_ptr<ThreadRanks> ranks_;
  std::vector<int> members_;
  std::vector<ThreadPart> parts_;
  std::vector<bool> has_arrived_;
  std::size_t num_arrived_ = 0;
  bool is_done_ = false;
};

}  // namespace ladder
