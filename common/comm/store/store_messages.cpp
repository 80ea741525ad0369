#include "common/comm/store/store_messages.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "common/comm/argument_checks.hpp"
#include "common/core/check.hpp"

namespace ladder {
namespace {

constexpr std::size_t kHeaderBytes = 1 + sizeof(std::int64_t);  // operation, length
constexpr std::int64_t kPacketBytes = KeyValueStore::kMaxValueBytes / 2;

// A message is at least one packet: its header.
std::int64_t num_packets(std::int64_t bytes) {
  return bytes == 0 ? 1 : (bytes - 1) / kPacketBytes + 1;
}

// Of the message, in packet `index`.
std::size_t packet_bytes(std::int64_t bytes, std::int64_t index) {
  return static_cast<std::size_t>(std::min(kPacketBytes, bytes - index * kPacketBytes));
}

std::string packet_key(const std::string& key, std::int64_t index) {
  return index == 0 ? key : concat(key, "/", index);
}

std::string message_key(const StoreGroup& group, char channel, std::int64_t tag, int sender,
                        int receiver, std::int64_t position) {
  return concat(group.prefix, channel, tag, "/", sender, ">", receiver, "/", position);
}

char letter(Channel channel) {
  return channel == Channel::kCollectives ? 'c' : 'p';
}

}  // namespace

std::unique_ptr<Messages> StoreGroup::new_messages(CommOp op) {
  return std::make_unique<StoreMessages>(*this, op);
}

std::string StoreMessages::who() const {
  return message_prefix(group_.rank, group_.size, to_string(op_));
}

void StoreMessages::send(Channel channel, const std::byte* data, std::int64_t bytes, int peer,
                         int tag) {
  if (bytes == 0) return;
  const bool is_collective = channel == Channel::kCollectives;
  std::int64_t& position = is_collective ? num_sent_[peer] : group_.num_sent[{peer, tag}];
  put(message_key(group_, letter(channel), tag, group_.rank, peer, position++), data, bytes);
  OpTraffic& traffic = (*group_.meter)[op_];
  traffic.bytes_sent += bytes;
  traffic.messages += (bytes + kLongestMessageBytes - 1) / kLongestMessageBytes;
}

void StoreMessages::receive(Channel channel, std::byte* data, std::int64_t bytes, int peer,
                            int tag) {
  if (bytes == 0) return;
  const bool is_collective = channel == Channel::kCollectives;
  std::int64_t& position = is_collective ? num_received_[peer] : group_.num_received[{peer, tag}];
  awaited_.push_back({message_key(group_, letter(channel), tag, peer, group_.rank, position++),
                      data, bytes, peer});
}

void StoreMessages::barrier() {
  const std::int64_t number = group_.num_barriers++;
  for (int peer = 0; peer < group_.size; ++peer) {
    if (peer == group_.rank) continue;
    put(message_key(group_, 'b', number, group_.rank, peer, 0), nullptr, 0);
    awaited_.push_back({message_key(group_, 'b', number, peer, group_.rank, 0), nullptr, 0, peer});
  }
}

void StoreMessages::put(const std::string& key, const std::byte* data, std::int64_t bytes) {
  for (std::int64_t i = num_packets(bytes) - 1; i >= 0; --i) {
    const std::int64_t begin = i * kPacketBytes;
    const std::size_t length = packet_bytes(bytes, i);
    const std::size_t header = i == 0 ? kHeaderBytes : 0;
    std::vector<std::uint8_t> packet(header + length);
    if (i == 0) {
      packet[0] = static_cast<std::uint8_t>(op_);
      std::memcpy(packet.data() + 1, &bytes, sizeof bytes);
    }
    if (length > 0) std::memcpy(packet.data() + header, data + begin, length);
    group_.store->put(packet_key(key, i), packet);
  }
}

bool StoreMessages::test() {
  try {
    std::erase_if(awaited_, [&](const Awaited& awaited) { return try_take(awaited); });
  } catch (const CheckError& error) {
    throw CheckError(who() + error.what());
  }
  if (!error_.empty()) throw CheckError(who() + std::exchange(error_, {}));
  return awaited_.empty();
}

// Nothing if no rank can have sent it.
std::optional<StoreMessages::Header> StoreMessages::read_header(
    const std::vector<std::uint8_t>& packet) {
  if (packet.size() < kHeaderBytes || packet[0] >= kNumCommOps) return {};
  Header header = {.op = static_cast<CommOp>(packet[0])};
  std::memcpy(&header.bytes, packet.data() + 1, sizeof header.bytes);
  if (header.bytes < 0) return {};
  return header;
}

bool StoreMessages::try_take(const Awaited& awaited) {
  std::optional<std::vector<std::uint8_t>> packet = take(awaited.key);
  if (!packet) return false;
  const std::optional<Header> header = read_header(*packet);
  std::string problem = header ? difference(awaited, *header) : foreign(awaited);
  for (std::int64_t i = 0; header && i < num_packets(header->bytes); ++i) {
    if (i > 0) packet = take(packet_key(awaited.key, i));
    const std::size_t begin = i == 0 ? kHeaderBytes : 0;
    const std::size_t length = packet_bytes(header->bytes, i);
    if (!packet || packet->size() != begin + length) {
      problem = foreign(awaited);
      break;
    }
    if (problem.empty() && length > 0)
      std::memcpy(awaited.data + i * kPacketBytes, packet->data() + begin, length);
  }
  if (!problem.empty()) error_ = problem;
  return true;
}

std::optional<std::vector<std::uint8_t>> StoreMessages::take(const std::string& key) {
  if (!group_.store->has(key)) return {};
  std::vector<std::uint8_t> packet = group_.store->get(key);
  group_.store->remove(key);
  return packet;
}

std::string StoreMessages::foreign(const Awaited& awaited) {
  return concat("the message of rank ", awaited.peer, " under '", awaited.key,
                "' is none of Ladder's: another program writes to this store; give the job a "
                "MASTER_PORT of its own");
}

std::string StoreMessages::difference(const Awaited& awaited, const Header& header) const {
  if (header.op != (op_ == CommOp::kRecv ? CommOp::kSend : op_)) {
    return concat("rank ", awaited.peer, " called ", to_string(header.op),
                  "; all ranks must call the same operations in the same order");
  }
  if (header.bytes == awaited.bytes) return "";
  return other_length(awaited.peer, header.bytes, awaited.bytes);
}

void StoreMessages::idle(double waited_s) {
  KeyValueStore& store = *group_.store;
  if (waited_s > 1 && store.has(group_.failure_key)) {
    const std::vector<std::uint8_t> name = store.get(group_.failure_key);
    throw CheckError(concat(who(), std::string(name.begin(), name.end()), " has failed"));
  }
  check(waited_s < group_.timeout_s, who(), "rank ", awaited_.front().peer,
        " has sent nothing for ", group_.timeout_s,
        " s: it has ended, or waits for something else");
  const double pause_s = std::clamp(waited_s / 10, 20e-6, 1e-3);
  std::this_thread::sleep_for(std::chrono::duration<double>(pause_s));
}

}  // namespace ladder
