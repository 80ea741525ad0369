// Messages between the ranks of one group: what a transport between processes or threads supplies.
//
// All collectives are composed of them (message_communicator.hpp), so transports differ only here:
// MPI (mpi_communicator.hpp), a store that all ranks connect to (store_communicator.hpp), or the
// memory that threads share (run_as_threads.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "common/comm/machines.hpp"
#include "common/comm/traffic.hpp"

namespace ladder {

inline constexpr std::int64_t kLongestMessageBytes = std::int64_t{1} << 30;

// The tags of collectives are numbers of ours, those of send and recv the caller's.
enum class Channel { kCollectives, kPointToPoint };

// The messages of one operation.
class Messages {
 public:
  virtual ~Messages() = default;

  // send() and receive() only start. The bytes must stay untouched and alive until test() returns
  // true. Messages from one sender on one channel with one tag arrive in the order in which they
  // were sent, and fill the receives in the order of their calls. An empty message is not sent.
  // Traffic is counted at the sender.
  virtual void send(Channel channel, const std::byte* data, std::int64_t bytes, int peer,
                    int tag) = 0;
  virtual void receive(Channel channel, std::byte* data, std::int64_t bytes, int peer, int tag) = 0;
  // A barrier is not counted as traffic, and is in flight until every rank of the group has called
  // it.
  virtual void barrier() = 0;

  // Makes progress; true once everything has left and arrived. Throws CheckError, once, if a
  // message does not have the expected length; it is received into other memory, so that its sender
  // can continue.
  virtual bool test() = 0;
  // Passes time, after a test() that returned false, for a caller who has waited this long. Throws
  // CheckError if it should not wait any longer.
  virtual void idle(double waited_s) = 0;
};

// What the operations of one group share.
struct MessageGroup {
  virtual ~MessageGroup() = default;
  // Counted under `op`, which errors name as well. The group must outlive the messages.
  virtual std::unique_ptr<Messages> new_messages(CommOp op) = 0;
  // A group of these ranks of this one, in this order, for split(), which gives it its rank, size,
  // machines and meter. Every rank calls it; one with a negative color joins none, and gets null.
  virtual std::shared_ptr<MessageGroup> part(int color, const std::vector<int>& members) = 0;

  // What is sent to a peer for `op`.
  void count(CommOp op, int peer, std::int64_t bytes, std::int64_t num_messages) {
    OpTraffic& sent = (*meter)[op];
    sent.bytes_sent += bytes;
    sent.messages += num_messages;
    if (machines.are_apart(rank, peer)) sent.outer_bytes += bytes;
  }

  int rank = 0;
  int size = 1;
  Machines machines;
  std::int64_t num_tags = std::numeric_limits<int>::max();
  std::int64_t num_started = 0;    // collectives so far: the next one's number
  std::shared_ptr<Traffic> meter;  // shared by all groups split from one another

  // Collectives start in the same order on every rank, so a number identifies each of them. Tags
  // are these numbers, reused after num_tags collectives.
  int tag_of(std::int64_t number) const { return static_cast<int>(number % num_tags); }
};

}  // namespace ladder
