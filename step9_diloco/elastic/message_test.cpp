#include "step9_diloco/elastic/message.hpp"

#include <gtest/gtest.h>

namespace ladder {
namespace {

Message example(std::string_view payload) {
  return {.kind = MessageKind::kSum,
          .lighthouse_epoch = ~0ULL,
          .quorum = 7,
          .round = 3,
          .sender = 2,
          .epoch = 99,
          .offset = kPieceBytes,
          .total = kPieceBytes + static_cast<std::int64_t>(payload.size()),
          .payload = payload};
}

TEST(Message, IsReadAsItWasWritten) {
  const std::string bytes = encode(example("values"));
  const auto message = decode(bytes);
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(message->kind, MessageKind::kSum);
  EXPECT_EQ(message->lighthouse_epoch, ~0ULL);
  EXPECT_EQ(message->quorum, 7);
  EXPECT_EQ(message->round, 3);
  EXPECT_EQ(message->sender, 2);
  EXPECT_EQ(message->epoch, 99U);
  EXPECT_EQ(message->offset, kPieceBytes);
  EXPECT_EQ(message->payload, "values");
}

TEST(Message, EveryFlippedBitIsDetected) {
  const std::string good = encode(example("values"));
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bytes = good;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    EXPECT_FALSE(decode(bytes).has_value()) << bit;
  }
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(decode(good.substr(0, length)).has_value()) << length;
}

// With a right checksum, but sizes that do not fit together.
TEST(Message, SizesThatDoNotFitAreRefused) {
  const auto is_read = [](const auto& change) {
    Message message = example("values");
    change(message);
    return decode(encode(message)).has_value();
  };
  EXPECT_TRUE(is_read([](Message&) {}));
  EXPECT_FALSE(is_read([](Message& m) { m.offset = 1; }));
  EXPECT_FALSE(is_read([](Message& m) { m.offset = -kPieceBytes; }));
  EXPECT_FALSE(is_read([](Message& m) { m.total = 1LL << 60; }));
  EXPECT_FALSE(is_read([](Message& m) { m.total = -1; }));
  EXPECT_FALSE(is_read([](Message& m) { m.payload = ""; }));
  EXPECT_FALSE(is_read([](Message& m) { m.kind = MessageKind::kRequest; }));
  EXPECT_FALSE(is_read([](Message& m) { m.kind = static_cast<MessageKind>(kNumMessageKinds); }));
}

}  // namespace
}  // namespace ladder
