#include "step9_diloco/elastic/mailbox.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace ladder {

void Mailbox::begin(const Quorum& quorum) {
  const std::lock_guard lock(mutex_);
  quorum_ = quorum;
  is_waiting_ = true;
  std::erase_if(streams_, [&](const auto& entry) {
    const auto& [number, kind, sender, epoch] = entry.first;
    return number.lighthouse_epoch != quorum.lighthouse_epoch || number < quorum.number() ||
           (number == quorum.number() && !is_member({.sender = sender, .epoch = epoch}));
  });
}

bool Mailbox::deliver(const Message& message) {
  const bool is_state = message.kind == MessageKind::kState;
  if (message.kind == MessageKind::kRequest) return false;
  if (message.total > (is_state ? max_state_bytes_ : max_values_bytes_)) return false;
  const std::lock_guard lock(mutex_);
  const QuorumNumber number = {message.lighthouse_epoch, message.quorum};
  const bool is_known = number.lighthouse_epoch == quorum_.lighthouse_epoch;
  if (is_known && number < quorum_.number()) return false;
  const bool is_current = number == quorum_.number();
  if (is_current && (!is_member(message) || message.round != quorum_.outer_steps)) return false;
  const Key key = {number, message.kind, message.sender, message.epoch};
  const auto found = streams_.find(key);
  if (found == streams_.end()) {
    // A state comes on request only, so never early.
    if (!is_current && (is_state || early_bytes() + message.total > 2 * max_values_bytes_))
      return false;
    Stream& fresh = streams_[key];
    fresh.buffer.bytes.reset(new char[static_cast<std::size_t>(message.total)]);
    fresh.buffer.num_bytes = message.total;
    fresh.has_piece.resize(
        static_cast<std::size_t>((message.total + kPieceBytes - 1) / kPieceBytes));
  }
  Stream& stream = streams_[key];
  const auto piece = static_cast<std::size_t>(message.offset / kPieceBytes);
  if (stream.buffer.num_bytes != message.total || stream.has_piece[piece]) return false;
  std::memcpy(stream.buffer.bytes.get() + message.offset, message.payload.data(),
              message.payload.size());
  stream.has_piece[piece] = true;
  ++stream.num_pieces;
  changed_.notify_all();
  return true;
}

std::optional<InFlightBuffer> Mailbox::take(MessageKind kind, int sender, std::int64_t num_bytes,
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
  InFlightBuffer buffer = std::move(streams_[key].buffer);
  streams_.erase(key);
  if (buffer.num_bytes != num_bytes) return {};
  return buffer;
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

bool Mailbox::has_piece(MessageKind kind, int sender, std::int64_t piece) {
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(current_key(kind, sender));
  if (found == streams_.end()) return false;
  const std::vector<bool>& has_piece = found->second.has_piece;
  return piece < static_cast<std::int64_t>(has_piece.size()) &&
         has_piece[static_cast<std::size_t>(piece)];
}

Mailbox::Key Mailbox::current_key(MessageKind kind, int sender) const {
  return {quorum_.number(), kind, sender, quorum_.member(sender).epoch};
}

bool Mailbox::is_member(const Message& message) const {
  return std::ranges::any_of(quorum_.members, [&](const Member& member) {
    return member.worker == message.sender && member.epoch == message.epoch;
  });
}

std::int64_t Mailbox::early_bytes() const {
  std::int64_t sum = 0;
  for (const auto& [key, stream] : streams_) {
    if (std::get<0>(key) != quorum_.number()) sum += stream.buffer.num_bytes;
  }
  return sum;
}

}  // namespace ladder
