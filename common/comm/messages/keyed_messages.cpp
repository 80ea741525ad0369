#include "common/comm/messages/keyed_messages.hpp"

#include "common/comm/argument_checks.hpp"
#include "common/core/check.hpp"

namespace ladder {
namespace {

std::string message_key(const KeyedGroup& group, char channel, std::int64_t tag, int sender,
                        int receiver, std::int64_t position) {
  return concat(group.prefix, channel, tag, "/", sender, ">", receiver, "/", position);
}

char letter(Channel channel) {
  return channel == Channel::kCollectives ? 'c' : 'p';
}

}  // namespace

std::string KeyedMessages::who() const {
  return message_prefix(keyed_.rank, keyed_.size, to_string(op_));
}

void KeyedMessages::send(Channel channel, const std::byte* data, std::int64_t bytes, int peer,
                         int tag) {
  if (bytes == 0) return;
  const bool is_collective = channel == Channel::kCollectives;
  std::int64_t& position = is_collective ? num_sent_[peer] : keyed_.num_sent[{peer, tag}];
  put(message_key(keyed_, letter(channel), tag, keyed_.rank, peer, position++), data, bytes, peer);
  keyed_.count(op_, peer, bytes, (bytes + kLongestMessageBytes - 1) / kLongestMessageBytes);
}

void KeyedMessages::receive(Channel channel, std::byte* data, std::int64_t bytes, int peer,
                            int tag) {
  if (bytes == 0) return;
  const bool is_collective = channel == Channel::kCollectives;
  std::int64_t& position = is_collective ? num_received_[peer] : keyed_.num_received[{peer, tag}];
  awaited_.push_back({message_key(keyed_, letter(channel), tag, peer, keyed_.rank, position++),
                      data, bytes, peer});
}

void KeyedMessages::barrier() {
  const std::int64_t number = keyed_.num_barriers++;
  for (int peer = 0; peer < keyed_.size; ++peer) {
    if (peer == keyed_.rank) continue;
    put(message_key(keyed_, 'b', number, keyed_.rank, peer, 0), nullptr, 0, peer);
    awaited_.push_back({message_key(keyed_, 'b', number, peer, keyed_.rank, 0), nullptr, 0, peer});
  }
}

bool KeyedMessages::test() {
  std::erase_if(awaited_, [&](const Awaited& awaited) { return try_take(awaited); });
  const bool is_done = is_all_taken() && awaited_.empty();
  if (!error_.empty()) throw CheckError(who() + std::exchange(error_, {}));
  return is_done;
}

std::string KeyedMessages::difference(const Awaited& awaited, CommOp op, std::int64_t bytes) const {
  if (op != (op_ == CommOp::kRecv ? CommOp::kSend : op_)) {
    return concat("rank ", awaited.peer, " called ", to_string(op),
                  "; all ranks must call the same operations in the same order");
  }
  return bytes == awaited.bytes ? "" : other_length(awaited.peer, bytes, awaited.bytes);
}

}  // namespace ladder
