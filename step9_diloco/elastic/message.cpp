#include "step9_diloco/elastic/message.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>

#include "common/core/check.hpp"

namespace ladder {
namespace {

constexpr std::size_t kChecksumBytes = 8;  // XXH3-64 of all bytes after it
constexpr std::size_t kMessageHeaderBytes = kChecksumBytes + offsetof(Message, payload);
static_assert(kMessageHeaderBytes == 72);

// A slice and a sum of each worker that there can be, and as many again: each takes memory, however
// short it is.
constexpr std::int64_t kMaxStreams = 4096;

std::uint64_t checksum_of(std::string_view bytes) {
  const std::string_view rest = bytes.substr(kChecksumBytes);
  return XXH3_64bits(rest.data(), rest.size());
}

}  // namespace

const std::int64_t kMaxMessageBytes = kPieceBytes + static_cast<std::int64_t>(kMessageHeaderBytes);

Message piece_of(const Quorum& quorum, int worker, MessageKind kind, std::int64_t offset,
                 std::string_view stream) {
  return {.kind = kind,
          .lighthouse_epoch = quorum.lighthouse_epoch,
          .quorum = quorum.id,
          .round = quorum.outer_steps,
          .sender = worker,
          .process = quorum.member(worker).process,
          .offset = offset,
          .total = static_cast<std::int64_t>(stream.size()),
          .payload = stream.substr(static_cast<std::size_t>(offset), kPieceBytes)};
}

std::string encode(const Message& message) {
  check(static_cast<std::int64_t>(message.payload.size()) <= kPieceBytes, "a piece of ",
        message.payload.size(), " bytes is too long");
  std::string bytes(kMessageHeaderBytes + message.payload.size(), '\0');
  std::memcpy(bytes.data() + kChecksumBytes, &message, kMessageHeaderBytes - kChecksumBytes);
  std::ranges::copy(message.payload, bytes.begin() + kMessageHeaderBytes);
  const std::uint64_t checksum = checksum_of(bytes);
  std::memcpy(bytes.data(), &checksum, kChecksumBytes);
  return bytes;
}

std::optional<Message> decode(std::string_view bytes) {
  if (bytes.size() < kMessageHeaderBytes || std::ssize(bytes) > kMaxMessageBytes) return {};
  Message message;
  std::uint64_t checksum = 0;
  std::memcpy(&checksum, bytes.data(), kChecksumBytes);
  std::memcpy(static_cast<void*>(&message), bytes.data() + kChecksumBytes,
              kMessageHeaderBytes - kChecksumBytes);
  message.payload = bytes.substr(kMessageHeaderBytes);
  if (!std::ranges::equal(message.magic, Message().magic)) return {};
  const auto kind = static_cast<std::uint32_t>(message.kind);
  if (checksum != checksum_of(bytes) || kind >= kNumMessageKinds) return {};
  const auto length = static_cast<std::int64_t>(message.payload.size());
  if (message.offset < 0 || message.offset % kPieceBytes != 0 || message.offset >= message.total)
    return {};
  if (length != std::min(kPieceBytes, message.total - message.offset)) return {};
  return message;
}

void Mailbox::begin(const Quorum& quorum) {
  const std::lock_guard lock(mutex_);
  quorum_ = quorum;
  is_waiting_ = true;
  std::erase_if(streams_, [&](const auto& entry) {
    const auto& [number, kind, sender, process] = entry.first;
    return number.lighthouse_epoch != quorum.lighthouse_epoch || number < quorum.number() ||
           (number == quorum.number() && !is_member({.sender = sender, .process = process}));
  });
}

bool Mailbox::deliver(const Message& message) {
  const bool is_state = message.kind == MessageKind::kState;
  const std::int64_t most_bytes = is_state ? max_state_bytes_ : max_values_bytes_;
  if (message.total > most_bytes) return false;
  const std::lock_guard lock(mutex_);
  const QuorumNumber number = {message.lighthouse_epoch, message.quorum};
  const bool is_known = number.lighthouse_epoch == quorum_.lighthouse_epoch;
  if (is_known && number < quorum_.number()) return false;
  const bool is_current = number == quorum_.number();
  if (is_current && (!is_member(message) || message.round != quorum_.outer_steps)) return false;
  const Key key = {number, message.kind, message.sender, message.process};
  const auto found = streams_.find(key);
  if (found == streams_.end()) {
    const std::int64_t most_early_bytes = is_state ? most_bytes : 2 * most_bytes;
    if (!is_current && std::ssize(streams_) >= kMaxStreams) return false;
    if (!is_current && early_bytes(is_state) + message.total > most_early_bytes) return false;
    Stream& fresh = streams_[key];
    fresh.bytes.resize(static_cast<std::size_t>(message.total));
    fresh.has_piece.resize(
        static_cast<std::size_t>((message.total + kPieceBytes - 1) / kPieceBytes));
  }
  Stream& stream = streams_[key];
  const auto piece = static_cast<std::size_t>(message.offset / kPieceBytes);
  if (std::ssize(stream.bytes) != message.total || stream.has_piece[piece]) return false;
  std::memcpy(stream.bytes.data() + message.offset, message.payload.data(), message.payload.size());
  stream.has_piece[piece] = true;
  ++stream.num_pieces;
  changed_.notify_all();
  return true;
}

std::optional<std::string> Mailbox::take(MessageKind kind, int sender, std::int64_t num_bytes,
                                         double seconds) {
  std::unique_lock lock(mutex_);
  const Key key = current_key(kind, sender);
  const auto is_there = [&] {
    const auto found = streams_.find(key);
    return found != streams_.end() && found->second.is_complete();
  };
  changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                    [&] { return !is_waiting_ || is_there(); });
  if (!is_there()) return {};
  std::string bytes = std::move(streams_[key].bytes);
  streams_.erase(key);
  if (std::ssize(bytes) != num_bytes) return {};
  return bytes;
}

void Mailbox::stop_waiting() {
  const std::lock_guard lock(mutex_);
  is_waiting_ = false;
  changed_.notify_all();
}

std::int64_t Mailbox::await_pieces(MessageKind kind, int sender, std::int64_t known,
                                   double seconds) {
  std::unique_lock lock(mutex_);
  const Key key = current_key(kind, sender);
  const auto num_pieces = [&] {
    const auto found = streams_.find(key);
    return found == streams_.end() ? 0 : found->second.num_pieces;
  };
  changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                    [&] { return num_pieces() > known; });
  return num_pieces();
}

Mailbox::Key Mailbox::current_key(MessageKind kind, int sender) const {
  return {quorum_.number(), kind, sender, quorum_.member(sender).process};
}

bool Mailbox::is_member(const Message& message) const {
  return std::ranges::any_of(quorum_.members, [&](const Member& member) {
    return member.worker == message.sender && member.process == message.process;
  });
}

std::int64_t Mailbox::early_bytes(bool is_state) const {
  std::int64_t sum = 0;
  for (const auto& [key, stream] : streams_) {
    const auto& [number, kind, sender, process] = key;
    const bool is_early = number != quorum_.number();
    if (is_early && (kind == MessageKind::kState) == is_state) sum += std::ssize(stream.bytes);
  }
  return sum;
}

}  // namespace ladder
