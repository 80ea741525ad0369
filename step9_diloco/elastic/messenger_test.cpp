#include "step9_diloco/elastic/messenger.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <zmq.hpp>

#include "common/core/check.hpp"
#include "common/core/timer.hpp"
#include "common/testing/temp_folder.hpp"
#include "step9_diloco/elastic/paced_link.hpp"

namespace ladder {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// A messenger, and the payloads that have arrived.
class Post {
 public:
  explicit Post(const std::optional<CurveKeys>& keys = {})
      : messenger(
            keys, "127.0.0.1",
            [this](const Message& message) {
              const std::lock_guard lock(mutex_);
              payloads_.emplace_back(message.payload);
            },
            say_nothing) {}

  std::vector<std::string> payloads() {
    const std::lock_guard lock(mutex_);
    return payloads_;
  }
  bool wait_for(std::size_t num, double seconds = 10) {
    const Timer timer;
    while (payloads().size() < num && timer.seconds() < seconds)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return payloads().size() >= num;
  }
  bool wait_for(const std::string& payload, double seconds = 10) {
    const auto is_there = [&] {
      const std::vector<std::string> all = payloads();
      return std::ranges::find(all, payload) != all.end();
    };
    const Timer timer;
    while (!is_there() && timer.seconds() < seconds)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return is_there();
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> payloads_;

 public:
  Messenger messenger;
};

Message hello(std::string_view payload) {
  return {.total = static_cast<std::int64_t>(payload.size()), .payload = payload};
}

CurveKeys new_keys() {
  const TempFolder folder;
  write_curve_keys(folder.path("key"));
  return read_curve_keys(folder.path("key"));
}

TEST(Messenger, MessagesArriveInOrder) {
  Post one, other;
  for (const char* text : {"a", "b", "c"})
    one.messenger.send(other.messenger.address(), hello(text));
  ASSERT_TRUE(other.wait_for(3));
  EXPECT_THAT(other.payloads(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(one.messenger.num_bytes_sent(), 3 * (72 + 1));
}

TEST(Messenger, SendingToNobodyDoesNotBlock) {
  Post one;
  const std::string piece(static_cast<std::size_t>(kPieceBytes), 'x');
  const Timer timer;
  for (int i = 0; i < 200; ++i) one.messenger.send("tcp://127.0.0.1:1", hello(piece));
  one.messenger.keep_only({}, {});
  EXPECT_LT(timer.seconds(), 5);
}

// What an earlier quorum has left in the queue of a slow link, about 20 s of it, is not sent first.
TEST(Messenger, ANewQuorumDoesNotWaitForTheOldOne) {
  Post one, other;
  const PacedLink link(other.messenger.address(), 1e6);
  const std::string piece(static_cast<std::size_t>(kPieceBytes), 'x');
  for (int i = 0; i < 80; ++i) one.messenger.send(link.address(), hello(piece));
  ASSERT_TRUE(other.wait_for(1));
  one.messenger.keep_only({0, 1}, {});
  Message next = hello("next");
  next.quorum = 1;
  one.messenger.send(link.address(), next);
  EXPECT_TRUE(other.wait_for("next", 8));
}

// Of a state that is still served nothing is dropped.
TEST(Messenger, AnOlderQuorumsStateIsKept) {
  Post one, other;
  const PacedLink link(other.messenger.address(), 4e6);
  Message piece = hello("state");
  piece.kind = MessageKind::kState;
  one.messenger.send(link.address(), hello(std::string(kPieceBytes, 'x')));
  one.messenger.send(link.address(), piece);
  one.messenger.keep_only({0, 1}, {{0, 0}});
  EXPECT_TRUE(other.wait_for("state"));
}

// Sends bytes of its own, over ZeroMQ.
struct Stranger {
  explicit Stranger(
      const std::string& address,
      const std::function<void(zmq::socket_t&)>& prepare = [](zmq::socket_t&) {}) {
    socket.set(zmq::sockopt::linger, 0);
    prepare(socket);
    socket.connect(address);
  }
  void send(const std::string& bytes, bool has_more_parts = false) {
    socket.send(zmq::buffer(bytes),
                has_more_parts ? zmq::send_flags::sndmore : zmq::send_flags::none);
  }
  zmq::context_t context{1};
  zmq::socket_t socket{context, zmq::socket_type::push};
};

// Or one of several parts.
TEST(Messenger, ADamagedMessageIsRefused) {
  Post one;
  Stranger stranger(one.messenger.address());
  std::string damaged = encode(hello("values"));
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  for (const std::string& bytes :
       {damaged, std::string("hello"), std::string(), encode(hello("values")).substr(1)})
    stranger.send(bytes);
  for (const bool has_more_parts : {true, true, false})
    stranger.send(encode(hello("part")), has_more_parts);
  stranger.send(encode(hello("good")));
  ASSERT_TRUE(one.wait_for(1));
  EXPECT_THAT(one.payloads(), ElementsAre("good"));
  EXPECT_EQ(one.messenger.num_refused(), 5);
}

TEST(Messenger, AMessageThatIsTooLongEndsTheConnection) {
  Post one;
  Stranger stranger(one.messenger.address());
  stranger.send(std::string(static_cast<std::size_t>(kMaxMessageBytes) + 1, 'x'));
  EXPECT_FALSE(one.wait_for(1, 0.2));
  EXPECT_EQ(one.messenger.num_refused(), 0);  // it was not even received
}

TEST(Messenger, KeysLetInThoseThatHaveThem) {
  const CurveKeys keys = new_keys(), others = new_keys();
  Post one(keys), friendly(keys), plain, stranger(others);
  for (Post* post : {&plain, &stranger}) {
    post->messenger.send(one.messenger.address(), hello("no"));
    one.messenger.send(post->messenger.address(), hello("no"));
  }
  friendly.messenger.send(one.messenger.address(), hello("yes"));
  ASSERT_TRUE(one.wait_for(1));
  EXPECT_FALSE(one.wait_for(2, 0.5));
  EXPECT_THAT(one.payloads(), ElementsAre("yes"));
  EXPECT_TRUE(plain.payloads().empty());
  EXPECT_TRUE(stranger.payloads().empty());
}

// It knows the server's public key, but its own is another one.
TEST(Messenger, ThePublicKeyAloneOpensNothing) {
  const CurveKeys keys = new_keys();
  Post one(keys);
  Stranger stranger(one.messenger.address(), [&](zmq::socket_t& socket) {
    use_keys(socket, new_keys());
    socket.set(zmq::sockopt::curve_serverkey, keys.public_key);
  });
  stranger.send(encode(hello("no")));
  EXPECT_FALSE(one.wait_for(1, 0.5));
}

TEST(CurveKeys, AFileThatIsNoneIsRefused) {
  const TempFolder folder;
  EXPECT_THAT([&] { read_curve_keys(folder.path("missing")); },
              ThrowsMessage<CheckError>(HasSubstr("cannot read")));
  write_curve_keys(folder.path("key"));
  EXPECT_THAT([&] { write_curve_keys(folder.path("key")); },
              ThrowsMessage<CheckError>(HasSubstr("File exists")));
  ::chmod(folder.path("key").c_str(), 0644);
  EXPECT_THAT([&] { read_curve_keys(folder.path("key")); },
              ThrowsMessage<CheckError>(HasSubstr("others may read")));
  const std::string wrong =
      folder.write("wrong", new_keys().public_key + "\n" + new_keys().secret_key);
  ::chmod(wrong.c_str(), 0600);
  EXPECT_THAT([&] { read_curve_keys(wrong); },
              ThrowsMessage<CheckError>(HasSubstr("is no pair of keys")));
}

}  // namespace
}  // namespace ladder
