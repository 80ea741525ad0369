// A message between two workers: a fixed header, and a piece of a stream of bytes.
//
// Everything larger than kPieceBytes is cut into pieces, which may arrive in any order and even
// twice. The header says to which round the piece belongs, so that a worker that was frozen cannot
// disturb a later one, and who sent it. A checksum over all of it detects what was damaged on the
// way. It does not prove who the sender is: CURVE keys do (messenger.hpp).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "step9_diloco/elastic/quorum.hpp"

namespace ladder {

inline constexpr std::int64_t kPieceBytes = 256 * 1024;

enum class MessageKind : std::uint32_t {
  kSlice,  // of the sender's values: the receiver adds these slices up
  kSum,    // over all contributors, of the sender's slice
  kState,  // the sender's state when the quorum was formed
};
inline constexpr int kNumMessageKinds = 3;

// A message is on the wire as in memory: little-endian, as are all machines that libtorch runs on.
struct Message {
  char magic[4] = {'L', 'e', '0', '2'};
  MessageKind kind = MessageKind::kSlice;
  std::uint64_t lighthouse_epoch = 0;
  std::int64_t quorum = 0;
  std::int64_t round = 0;         // the quorum's outer steps
  std::int64_t sender = 0;        // worker
  std::uint64_t process = 0;      // of the sender's
  std::int64_t offset = 0;        // of the piece in its stream, in bytes: a multiple of kPieceBytes
  std::int64_t total = 0;         // length of the stream, in bytes
  std::string_view payload = {};  // comes right after

  bool operator==(const Message&) const = default;
};

// The piece at this offset of a stream that a member sends in the quorum's round.
Message piece_of(const Quorum& quorum, int worker, MessageKind kind, std::int64_t offset,
                 std::string_view stream);

// As bytes, checksum included. At most kMaxMessageBytes.
std::string encode(const Message& message);

// Reads what encode() has written; the payload points into `bytes`. Nothing for anything else: a
// wrong length, kind, offset or checksum.
std::optional<Message> decode(std::string_view bytes);

extern const std::int64_t kMaxMessageBytes;

// What other workers have sent, put together from its pieces, until somebody takes it.
//
// A fast worker sends before a slow one has even heard of the quorum, so what belongs to no known
// quorum waits, within a limit. Of the current quorum only its members are heard; what belongs to
// an earlier one is dropped. Memory is allocated only for lengths that are possible.
//
// Thread-safe.
class Mailbox {
 public:
  // The longest streams that there can be: of a fragment's values, and of a state.
  Mailbox(std::int64_t max_values_bytes, std::int64_t max_state_bytes)
      : max_values_bytes_(max_values_bytes), max_state_bytes_(max_state_bytes) {}

  // From now on this is the current quorum.
  void begin(const Quorum& quorum);

  // Adds a piece; false if it is ignored.
  bool deliver(const Message& message);

  // Waits for a whole stream of the current quorum, from this member, and takes it. Nothing if it
  // is not there after `seconds`, or has another length. After stop_waiting(), also that of another
  // thread, it waits no more in this quorum.
  std::optional<std::string> take(MessageKind kind, int sender, std::int64_t num_bytes,
                                  double seconds);
  void stop_waiting();

  // How many pieces of a stream that is still arriving are there. Waits up to `seconds` until there
  // are more than `known`.
  std::int64_t await_pieces(MessageKind kind, int sender, std::int64_t known, double seconds);

 private:
  // Quorum, kind, sender, sender's process.
  using Key = std::tuple<QuorumNumber, MessageKind, std::int64_t, std::uint64_t>;
  struct Stream {
    std::string bytes;
    std::vector<bool> has_piece;
    std::int64_t num_pieces = 0;

    bool is_complete() const { return num_pieces == static_cast<std::int64_t>(has_piece.size()); }
  };
  Key current_key(MessageKind kind, int sender) const;
  bool is_member(const Message& message) const;
  std::int64_t early_bytes(bool is_state) const;

  const std::int64_t max_values_bytes_, max_state_bytes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Quorum quorum_;
  bool is_waiting_ = true;
  std::map<Key, Stream> streams_;
};

}  // namespace ladder
