// What other workers have sent, put together from its pieces, until somebody takes it.
//
// A fast worker sends before a slow one has even heard of the quorum, so what belongs to no known
// quorum waits, within a limit. Of the current quorum only its members are heard; what belongs to
// an earlier one is dropped. Memory is allocated only for lengths that are possible.
//
// Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "step9_diloco/elastic/message.hpp"

namespace ladder {

// The bytes of a stream.
struct InFlightBuffer {
  std::unique_ptr<char[]> bytes;
  std::int64_t num_bytes = 0;
};

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
  std::optional<InFlightBuffer> take(MessageKind kind, int sender, std::int64_t num_bytes,
                                     double seconds);
  void stop_waiting();

  // Of a stream that is still arriving: how many pieces are there. Waits up to `seconds` until
  // there are more than `known`.
  std::int64_t await_pieces(MessageKind kind, int sender, std::int64_t known, double seconds);
  bool has_piece(MessageKind kind, int sender, std::int64_t piece);

 private:
  // Quorum, kind, sender, sender's epoch.
  using Key = std::tuple<QuorumNumber, MessageKind, std::int64_t, std::uint64_t>;
  struct Stream {
    InFlightBuffer buffer;
    std::vector<bool> has_piece;
    std::int64_t num_pieces = 0;

    bool is_complete() const { return num_pieces == static_cast<std::int64_t>(has_piece.size()); }
  };
  Key current_key(MessageKind kind, int sender) const;
  bool is_member(const Message& message) const;
  std::int64_t early_bytes() const;

  const std::int64_t max_values_bytes_, max_state_bytes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Quorum quorum_;
  bool is_waiting_ = true;
  std::map<Key, Stream> streams_;
};

}  // namespace ladder
