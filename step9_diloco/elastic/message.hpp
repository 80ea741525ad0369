// A message between two workers: a fixed header, and a piece of a stream of bytes.
//
// Everything larger than kPieceBytes is cut into pieces, which may arrive in any order and even
// twice. The header says to which round the piece belongs, so that a worker that was frozen cannot
// disturb a later one, and who sent it. A checksum over all of it detects what was damaged on the
// way. It does not prove who the sender is: CURVE keys do (messenger.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "step9_diloco/elastic/quorum.hpp"

namespace ladder {

inline constexpr std::int64_t kPieceBytes = 256 * 1024;

enum class MessageKind : std::uint32_t {
  kSlice,    // of the sender's values: the receiver adds these slices up
  kSum,      // over all contributors, of the sender's slice
  kRequest,  // for the piece at `offset` of a snapshot; without a payload
  kState,    // the sender's state when the quorum was formed
};
inline constexpr int kNumMessageKinds = 4;

struct Message {
  MessageKind kind = MessageKind::kSlice;
  std::uint64_t lighthouse_epoch = 0;
  std::int64_t quorum = 0;
  std::int64_t round = 0;   // the quorum's outer steps
  std::int64_t sender = 0;  // worker
  std::uint64_t epoch = 0;  // of the sender's process
  std::int64_t offset = 0;  // of the piece in its stream, in bytes: a multiple of kPieceBytes
  std::int64_t total = 0;   // length of the stream, in bytes
  std::string_view payload = {};

  bool operator==(const Message&) const = default;
};

// As bytes, checksum included. At most kMaxMessageBytes.
std::string encode(const Message& message);

// Reads what encode() has written; the payload points into `bytes`. Nothing for anything else: a
// wrong length, kind, offset or checksum.
std::optional<Message> decode(std::string_view bytes);

extern const std::int64_t kMaxMessageBytes;

}  // namespace ladder
