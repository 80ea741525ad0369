// Messages that wait in a store until their receiver takes them.
//
// The sender puts a message under a key of its own, which names the group, sender, receiver, tag
// and position, so a send is done at once. The receiver asks whether the key is there, and removes
// it with the last byte that it reads: the store holds only what is on its way.
//
//   PREFIX c TAG / SENDER > RECEIVER / POSITION    of collectives; p: point to point, b: barriers
//
// A message says which operation it belongs to and how long it is. One longer than the store's
// values travels under several keys, of which the first is put last. Other programs can write to
// the store, so no packet's length is believed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/messages/message_group.hpp"
#include "common/comm/store/key_value_store.hpp"

namespace ladder {

struct StoreGroup final : MessageGroup {
  std::unique_ptr<Messages> new_messages(CommOp op) override;

  std::shared_ptr<KeyValueStore> store;
  std::string prefix;       // of the group's keys
  std::string failure_key;  // holds the name of a rank that has failed, once there is one
  double timeout_s = 0;
  std::int64_t num_barriers = 0;
  std::int64_t num_splits = 0;
  // Between this rank and a peer: the next position of messages with the caller's tag.
  std::map<std::pair<int /*peer*/, int /*tag*/>, std::int64_t> num_sent, num_received;
};

class StoreMessages final : public Messages {
 public:
  StoreMessages(StoreGroup& group, CommOp op) : group_(group), op_(op) {}

  void send(Channel channel, const std::byte* data, std::int64_t bytes, int peer, int tag) override;
  void receive(Channel channel, std::byte* data, std::int64_t bytes, int peer, int tag) override;
  void barrier() override;
  bool test() override;
  void idle(double waited_s) override;

 private:
  struct Awaited {
    std::string key;
    std::byte* data;
    std::int64_t bytes;
    int peer;
  };
  struct Header {
    CommOp op;
    std::int64_t bytes = 0;  // of the message
  };
  void put(const std::string& key, const std::byte* data, std::int64_t bytes);
  bool try_take(const Awaited& awaited);                                  // true if it was there
  std::optional<std::vector<std::uint8_t>> take(const std::string& key);  // out of the store
  static std::optional<Header> read_header(const std::vector<std::uint8_t>& packet);
  static std::string foreign(const Awaited& awaited);
  std::string difference(const Awaited& awaited, const Header& header) const;
  std::string who() const;  // "rank 1 of 4: all_reduce: "

  StoreGroup& group_;
  CommOp op_;
  std::vector<Awaited> awaited_;
  std::map<int /*peer*/, std::int64_t> num_sent_, num_received_;  // of this collective
  std::string error_;  // about the last message that differed, until thrown
};

}  // namespace ladder
