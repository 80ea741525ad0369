// A group of threads: where its ranks find the meeting that their next operation belongs to.
//
// Collectives start in the same order on every rank, so a number identifies each of them. Messages
// from one sender to one receiver with the same tag form a line: the first send meets the first
// recv.
//
// Threads: all ranks of the group share it; every function may be called by any of them.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "common/comm/threads/thread_meeting.hpp"

namespace ladder {

class ThreadGroup {
 public:
  // `members` are the ranks of the group, in its order, as numbered in the whole process.
  ThreadGroup(std::shared_ptr<ThreadRanks> ranks, std::vector<int> members);

  int size() const { return static_cast<int>(members_.size()); }
  // The number of a rank of the group among all ranks of the process.
  int number_in_process(int rank) const { return members_[static_cast<std::size_t>(rank)]; }
  ThreadRanks& ranks() { return *ranks_; }

  // Brings the part of one rank to the group's `number`-th collective, where its seat is its rank.
  std::shared_ptr<ThreadMeeting> meet(std::int64_t number, ThreadPart part);

  // Brings the part of a message's sender or receiver, where its seat is kSender or kReceiver.
  static constexpr int kSender = 0;
  static constexpr int kReceiver = 1;
  struct Line {
    int sender;
    int receiver;
    int tag;
    auto operator<=>(const Line&) const = default;
  };
  std::shared_ptr<ThreadMeeting> meet(Line line, int seat, ThreadPart part);

  // The act of a split: gives every part its new group, and its rank there.
  void act_split(std::vector<ThreadPart>& parts) const;

 private:
  // Those of a line wait for the other side, so all of them have the same free seat.
  struct Waiting {
    int free_seat = kSender;
    std::deque<std::shared_ptr<ThreadMeeting>> meetings;
  };

  const std::shared_ptr<ThreadRanks> ranks_;
  const std::vector<int> members_;
  // Those that still wait for somebody.
  std::map<std::int64_t, std::shared_ptr<ThreadMeeting>> collectives_;
  std::map<Line, Waiting> messages_;
};

}  // namespace ladder
