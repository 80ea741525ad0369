#include "step9_diloco/elastic/messenger.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <zmq.hpp>

#include "common/core/check.hpp"
#include "common/core/timer.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/temp_folder.hpp"
#include "step9_diloco/elastic/testing/peer.hpp"

namespace ladder {
namespace {

using ::testing::ElementsAre;

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
  // Whether this arrives in time.
  bool gets(const std::string& payload, double seconds = 10) {
    const Timer timer;
    while (timer.seconds() < seconds) {
      const std::vector<std::string> all = payloads();
      if (std::ranges::find(all, payload) != all.end()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
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
  ASSERT_TRUE(other.gets("c"));
  EXPECT_THAT(other.payloads(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(one.messenger.num_bytes_sent(), 3 * (72 + 1));
}

// What an earlier quorum has left in the queue of a slow link, about 20 s of it, is not sent first.
TEST(Messenger, ANewQuorumDoesNotWaitForTheOldOne) {
  Post one, other;
  const Relay link(other.messenger.address(), 1e6);
  const std::string piece(static_cast<std::size_t>(kPieceBytes), 'x');
  for (int i = 0; i < 80; ++i) one.messenger.send(link.address(), hello(piece));
  ASSERT_TRUE(other.gets(piece));
  one.messenger.keep_only({0, 1}, {});
  Message next = hello("next");
  next.quorum = 1;
  one.messenger.send(link.address(), next);
  EXPECT_TRUE(other.gets("next", 8));
}

// Nothing is dropped of a state that is still served.
TEST(Messenger, AnOlderQuorumsStateIsKept) {
  Post one, other;
  const Relay link(other.messenger.address(), 4e6);
  const auto piece = std::make_shared<std::string>(encode(hello("state")));
  one.messenger.send_state(
      link.address(), {0, 0},
      std::make_shared<std::string>(encode(hello(std::string(kPieceBytes, 'x')))));
  one.messenger.send_state(link.address(), {0, 0}, piece);
  one.messenger.keep_only({0, 1}, {{0, 0}});
  EXPECT_TRUE(other.gets("state"));
}

// A message of several parts is refused as well. One that is too long ends the connection: it is
// not even received.
TEST(Messenger, ADamagedMessageIsRefused) {
  Post one;
  Stranger stranger(one.messenger.address(), zmq::socket_type::push);
  Stranger other(one.messenger.address(), zmq::socket_type::push);
  std::string damaged = encode(hello("values"));
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  for (const std::string& bytes :
       {damaged, std::string("hello"), std::string(), encode(hello("values")).substr(1)})
    stranger.send(bytes);
  for (const bool has_more_parts : {true, true, false})
    stranger.send(encode(hello("part")), has_more_parts);
  stranger.send(encode(hello("good")));
  other.send(std::string(static_cast<std::size_t>(kMaxMessageBytes) + 1, 'x'));
  ASSERT_TRUE(one.gets("good"));
  EXPECT_FALSE(one.gets("anything else", 0.2));
  EXPECT_THAT(one.payloads(), ElementsAre("good"));
  EXPECT_EQ(one.messenger.num_refused(), 5);
}

// One of those without knows the public key, but its own is another one.
TEST(Messenger, KeysLetInThoseThatHaveThem) {
  const CurveKeys keys = new_keys(), others = new_keys();
  Post one(keys), friendly(keys), plain, stranger(others);
  for (Post* post : {&plain, &stranger}) {
    post->messenger.send(one.messenger.address(), hello("no"));
    one.messenger.send(post->messenger.address(), hello("no"));
  }
  Stranger half(one.messenger.address(), zmq::socket_type::push, [&](zmq::socket_t& socket) {
    use_keys(socket, others);
    socket.set(zmq::sockopt::curve_serverkey, keys.public_key);
  });
  half.send(encode(hello("no")));
  friendly.messenger.send(one.messenger.address(), hello("yes"));
  ASSERT_TRUE(one.gets("yes"));
  EXPECT_FALSE(one.gets("no", 0.5));
  EXPECT_TRUE(plain.payloads().empty());
  EXPECT_TRUE(stranger.payloads().empty());
}

TEST(CurveKeys, AFileThatIsNoneIsRefused) {
  const TempFolder folder;
  expect_throws<CheckError>([&] { read_curve_keys(folder.path("missing")); }, {"cannot read"});
  write_curve_keys(folder.path("key"));
  expect_throws<CheckError>([&] { write_curve_keys(folder.path("key")); }, {"File exists"});
  ::chmod(folder.path("key").c_str(), 0644);
  expect_throws<CheckError>([&] { read_curve_keys(folder.path("key")); }, {"others may read"});
  const std::string wrong =
      folder.write("wrong", new_keys().public_key + "\n" + new_keys().secret_key);
  ::chmod(wrong.c_str(), 0600);
  expect_throws<CheckError>([&] { read_curve_keys(wrong); }, {"is no pair of keys"});
}

}  // namespace
}  // namespace ladder
