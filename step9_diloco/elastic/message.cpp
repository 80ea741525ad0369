#include "step9_diloco/elastic/message.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>

#include "common/core/check.hpp"

namespace ladder {
namespace {

// On the wire: little-endian, as are all machines that libtorch runs on.
struct Header {
  std::uint64_t checksum;  // XXH3-64 of all bytes after it
  char magic[4];
  std::uint32_t kind;
  std::uint64_t lighthouse_epoch;
  std::int64_t quorum, round, sender;
  std::uint64_t epoch;
  std::int64_t offset, total;
};
static_assert(sizeof(Header) == 72);

constexpr char kMagic[4] = {'L', 'e', '0', '1'};

std::uint64_t checksum_of(std::string_view bytes) {
  const std::string_view rest = bytes.substr(sizeof(Header::checksum));
  return XXH3_64bits(rest.data(), rest.size());
}

}  // namespace

const std::int64_t kMaxMessageBytes = kPieceBytes + static_cast<std::int64_t>(sizeof(Header));

std::string encode(const Message& message) {
  check(static_cast<std::int64_t>(message.payload.size()) <= kPieceBytes, "a piece of ",
        message.payload.size(), " bytes is too long");
  Header header = {.checksum = 0,
                   .magic = {},
                   .kind = static_cast<std::uint32_t>(message.kind),
                   .lighthouse_epoch = message.lighthouse_epoch,
                   .quorum = message.quorum,
                   .round = message.round,
                   .sender = message.sender,
                   .epoch = message.epoch,
                   .offset = message.offset,
                   .total = message.total};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  std::string bytes(sizeof header + message.payload.size(), '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  if (!message.payload.empty())
    std::memcpy(bytes.data() + sizeof header, message.payload.data(), message.payload.size());
  header.checksum = checksum_of(bytes);
  std::memcpy(bytes.data(), &header.checksum, sizeof header.checksum);
  return bytes;
}

std::optional<Message> decode(std::string_view bytes) {
  Header header;
  if (bytes.size() < sizeof header || static_cast<std::int64_t>(bytes.size()) > kMaxMessageBytes)
    return {};
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return {};
  if (header.checksum != checksum_of(bytes) || header.kind >= kNumMessageKinds) return {};
  const Message message = {.kind = static_cast<MessageKind>(header.kind),
                           .lighthouse_epoch = header.lighthouse_epoch,
                           .quorum = header.quorum,
                           .round = header.round,
                           .sender = header.sender,
                           .epoch = header.epoch,
                           .offset = header.offset,
                           .total = header.total,
                           .payload = bytes.substr(sizeof header)};
  const bool is_request = message.kind == MessageKind::kRequest;
  const auto length = static_cast<std::int64_t>(message.payload.size());
  if (message.offset < 0 || message.offset % kPieceBytes != 0 || message.offset >= message.total)
    return {};
  if (length != (is_request ? 0 : std::min(kPieceBytes, message.total - message.offset))) return {};
  return message;
}

}  // namespace ladder
