// Messages that lie under a key until their receiver takes them: what a store between processes and
// the memory of threads have in common.
//
// Each has a key of its own, which names the group, sender, receiver, tag and position:
//
//   PREFIX c TAG / SENDER > RECEIVER / POSITION    of collectives; p: point to point, b: barriers
//
// and says which operation it belongs to, so that ranks that call different ones are told.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "common/comm/messages/message_group.hpp"
#include "common/core/check.hpp"

namespace ladder {

struct KeyedGroup : MessageGroup {
  std::string prefix_of_part(int color) {
    return concat(prefix, "s", num_splits++, "/", color, "/");
  }

  std::string prefix;  // of the group's keys
  std::int64_t num_barriers = 0;
  std::int64_t num_splits = 0;
  // The next position of messages with the caller's tag between this rank and a peer.
  std::map<std::pair<int /*peer*/, int /*tag*/>, std::int64_t> num_sent, num_received;
};

class KeyedMessages : public Messages {
 public:
  KeyedMessages(KeyedGroup& group, CommOp op) : op_(op), keyed_(group) {}

  void send(Channel channel, const std::byte* data, std::int64_t bytes, int peer, int tag) final;
  void receive(Channel channel, std::byte* data, std::int64_t bytes, int peer, int tag) final;
  void barrier() final;
  bool test() final;

 protected:
  struct Awaited {
    std::string key;
    std::byte* data;
    std::int64_t bytes;
    int peer;
  };
  virtual void put(const std::string& key, const std::byte* data, std::int64_t bytes, int peer) = 0;
  // True if it was there, and has been taken.
  virtual bool try_take(const Awaited& awaited) = 0;
  virtual bool is_all_taken() { return true; }  // that was put: it may be changed

  // What is wrong with a message of this operation and length, or nothing.
  std::string difference(const Awaited& awaited, CommOp op, std::int64_t bytes) const;
  std::string who() const;  // "rank 1 of 4: all_reduce: "

  CommOp op_;
  std::vector<Awaited> awaited_;
  std::string error_;  // about the last message that differed, until thrown

 private:
  KeyedGroup& keyed_;
  std::map<int /*peer*/, std::int64_t> num_sent_, num_received_;  // of this collective
};

}  // namespace ladder
