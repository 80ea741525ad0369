// The bytes are a message between workers; then the fields of messages, which get a right checksum
// and go into a mailbox.
#include <string>

#include "step9_diloco/elastic/message.hpp"
#include "tests/fuzz/fuzz_input.hpp"

namespace ladder {
namespace {

constexpr std::int64_t kMaxValues = 3 * kPieceBytes, kMaxState = 4 * kPieceBytes;

Quorum small_quorum() {
  return {.lighthouse_epoch = 1,
          .id = 2,
          .outer_steps = 3,
          .members = {{.worker = 0, .process = 1}, {.worker = 1, .process = 2}}};
}

// Small numbers, which meet a quorum, or any.
std::int64_t take_number(FuzzBytes& bytes, bool is_small) {
  return is_small ? bytes.take<std::int8_t>() : bytes.take<std::int64_t>();
}

void must_fit(const Message& message) {
  const auto length = static_cast<std::int64_t>(message.payload.size());
  must_hold(static_cast<int>(message.kind) < kNumMessageKinds);
  must_hold(0 <= message.offset && message.offset < message.total);
  must_hold(length <= kPieceBytes && length <= message.total - message.offset);
}

void deliver_next(FuzzBytes& bytes, Mailbox& mailbox) {
  static const std::string filler(static_cast<std::size_t>(kPieceBytes), 'x');
  const auto how = bytes.take<std::uint8_t>();
  const bool is_small = (how & 1) != 0, is_full = (how & 2) != 0;
  Message message = {.kind = static_cast<MessageKind>(bytes.take<std::uint8_t>() % 4),
                     .lighthouse_epoch = bytes.take<std::uint8_t>(),
                     .quorum = take_number(bytes, is_small),
                     .round = take_number(bytes, is_small),
                     .sender = take_number(bytes, is_small),
                     .process = bytes.take<std::uint8_t>(),
                     .offset = take_number(bytes, is_small),
                     .total = take_number(bytes, is_small)};
  if (is_small) {
    message.offset *= kPieceBytes;
    message.total += message.offset + (is_full ? kPieceBytes : 0);
  }
  message.payload = is_full ? filler : bytes.take_bytes(bytes.take<std::uint8_t>());
  const std::string encoded = encode(message);
  const auto decoded = decode(encoded);
  if (!decoded) return;
  must_fit(*decoded);
  must_hold(*decoded == message);
  mailbox.deliver(*decoded);
}

}  // namespace
}  // namespace ladder

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace ladder;
  const std::string_view raw(reinterpret_cast<const char*>(bytes), size);
  if (const auto message = decode(raw)) {
    must_fit(*message);
    must_hold(encode(*message) == raw);
  }
  FuzzBytes rest(bytes, size);
  Mailbox mailbox(kMaxValues, kMaxState);
  const bool begins_first = rest.take<std::uint8_t>() % 2 != 0;
  if (begins_first) mailbox.begin(small_quorum());
  for (int i = 0; i < 32 && !rest.is_at_end(); ++i) deliver_next(rest, mailbox);
  if (!begins_first) mailbox.begin(small_quorum());
  for (const auto kind : {MessageKind::kSlice, MessageKind::kSum, MessageKind::kState}) {
    mailbox.await_pieces(kind, 1, 0, 0);
    const auto buffer = mailbox.take(kind, 1, kPieceBytes + 1, 0);
    must_hold(!buffer || std::ssize(*buffer) == kPieceBytes + 1);
  }
  return 0;
}
