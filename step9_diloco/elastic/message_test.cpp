#include "step9_diloco/elastic/message.hpp"

#include <gtest/gtest.h>

#include "common/core/timer.hpp"

namespace ladder {
namespace {

Message example(std::string_view payload) {
  return {.kind = MessageKind::kSum,
          .lighthouse_epoch = ~0ULL,
          .quorum = 7,
          .round = 3,
          .sender = 2,
          .process = 99,
          .offset = kPieceBytes,
          .total = kPieceBytes + static_cast<std::int64_t>(payload.size()),
          .payload = payload};
}

TEST(Message, IsReadAsItWasWritten) {
  const std::string bytes = encode(example("values"));
  EXPECT_EQ(decode(bytes), example("values"));
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

// The checksum is right, but the version is another, or sizes do not fit together.
TEST(Message, WhatDoesNotFitIsRefused) {
  const auto is_read = [](const auto& change) {
    Message message = example("values");
    change(message);
    return decode(encode(message)).has_value();
  };
  EXPECT_TRUE(is_read([](Message&) {}));
  EXPECT_FALSE(is_read([](Message& m) { m.magic[3] = '1'; }));
  EXPECT_FALSE(is_read([](Message& m) { m.offset = 1; }));
  EXPECT_FALSE(is_read([](Message& m) { m.offset = -kPieceBytes; }));
  EXPECT_FALSE(is_read([](Message& m) { m.total = 1LL << 60; }));
  EXPECT_FALSE(is_read([](Message& m) { m.total = -1; }));
  EXPECT_FALSE(is_read([](Message& m) { m.payload = ""; }));
  EXPECT_FALSE(is_read([](Message& m) { m.kind = static_cast<MessageKind>(kNumMessageKinds); }));
}

constexpr std::int64_t kMaxValues = 3 * kPieceBytes, kMaxState = 10 * kPieceBytes;

Quorum quorum_7() {
  return {.lighthouse_epoch = 5,
          .id = 7,
          .outer_steps = 3,
          .members = {{.worker = 0, .process = 10}, {.worker = 1, .process = 11}}};
}

// Piece i of a stream of worker 1, filled with 'a' + i.
struct Piece {
  std::string bytes;
  Message message;
  Piece(std::int64_t i, std::int64_t total)
      : bytes(static_cast<std::size_t>(std::min(kPieceBytes, total - i * kPieceBytes)),
              static_cast<char>('a' + i)),
        message{.kind = MessageKind::kSum,
                .lighthouse_epoch = 5,
                .quorum = 7,
                .round = 3,
                .sender = 1,
                .process = 11,
                .offset = i * kPieceBytes,
                .total = total,
                .payload = bytes} {}
};

TEST(Mailbox, PutsPiecesTogetherInAnyOrder) {
  Mailbox mailbox(kMaxValues, kMaxState);
  mailbox.begin(quorum_7());
  const std::int64_t total = 2 * kPieceBytes + 4;
  for (const std::int64_t i : {2, 0}) EXPECT_TRUE(mailbox.deliver(Piece(i, total).message));
  EXPECT_FALSE(mailbox.deliver(Piece(2, total).message));  // twice
  EXPECT_EQ(mailbox.await_pieces(MessageKind::kSum, 1, 0, 0), 2);
  const Timer timer;
  EXPECT_FALSE(mailbox.take(MessageKind::kSum, 1, total, 0.05).has_value());
  EXPECT_FALSE(mailbox.take(MessageKind::kSum, 1, total, -1).has_value());
  EXPECT_TRUE(timer.seconds() >= 0.05 && timer.seconds() < 5);
  EXPECT_TRUE(mailbox.deliver(Piece(1, total).message));
  const std::string piece(static_cast<std::size_t>(kPieceBytes), 'a');
  EXPECT_EQ(mailbox.take(MessageKind::kSum, 1, total, 0),
            piece + std::string(piece.size(), 'b') + "cccc");
  EXPECT_FALSE(mailbox.take(MessageKind::kSum, 1, total, 0).has_value());
}

TEST(Mailbox, OnlyWhatBelongsToTheRoundIsHeard) {
  Mailbox mailbox(kMaxValues, kMaxState);
  mailbox.begin(quorum_7());
  const auto is_heard = [&](const auto& change) {
    Piece piece(0, 8);
    change(piece.message);
    return mailbox.deliver(piece.message);
  };
  EXPECT_FALSE(is_heard([](Message& m) { m.quorum = 6; }));
  EXPECT_FALSE(is_heard([](Message& m) { m.round = 4; }));
  EXPECT_FALSE(is_heard([](Message& m) { m.sender = 2; }));
  EXPECT_FALSE(is_heard([](Message& m) { m.process = 10; }));
  EXPECT_FALSE(is_heard([](Message& m) { m.total = kMaxValues + 1; }));
  EXPECT_TRUE(is_heard([](Message&) {}));
  EXPECT_FALSE(is_heard([](Message& m) { m.total = 4; }));  // another length than before
  EXPECT_FALSE(mailbox.take(MessageKind::kSum, 1, 12, 0).has_value());  // or than expected
}

// What arrives before this worker has heard of the quorum waits, but not without limit.
TEST(Mailbox, KeepsWhatIsEarly) {
  Mailbox mailbox(kMaxValues, kMaxState);
  EXPECT_TRUE(mailbox.deliver(Piece(0, 8).message));
  Piece stranger(0, 8);
  stranger.message.process = 99;
  EXPECT_TRUE(mailbox.deliver(stranger.message));
  Piece next(0, 8);
  next.message.quorum = 8;
  EXPECT_TRUE(mailbox.deliver(next.message));
  mailbox.begin(quorum_7());
  EXPECT_TRUE(mailbox.take(MessageKind::kSum, 1, 8, 0).has_value());
  Quorum quorum_8 = quorum_7();
  quorum_8.id = 8;
  mailbox.begin(quorum_8);
  EXPECT_TRUE(mailbox.take(MessageKind::kSum, 1, 8, 0).has_value());

  int num_kept = 0;
  for (std::uint64_t epoch = 0; epoch < 100; ++epoch) {
    Piece flood(0, kMaxValues);
    flood.message.quorum = 9;
    flood.message.process = epoch;
    num_kept += mailbox.deliver(flood.message);
  }
  EXPECT_EQ(num_kept, 2);
  for (std::uint64_t process = 0; process < 10000; ++process) {  // short ones, and many
    Piece flood(0, 8);
    flood.message.kind = MessageKind::kState;
    flood.message.quorum = 9;
    flood.message.process = process;
    num_kept += mailbox.deliver(flood.message);
  }
  EXPECT_LE(num_kept, 4096);
  Piece current(0, 8);
  current.message.quorum = 8;
  EXPECT_TRUE(mailbox.deliver(current.message));  // members of the round are heard all the same
}

}  // namespace
}  // namespace ladder
