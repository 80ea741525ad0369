// What damage on the wire does: a relay between two workers flips bits.
#include "step9_diloco/elastic/exchange.hpp"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <set>
#include <thread>
#include <zmq.hpp>

#include "common/core/timer.hpp"
#include "step9_diloco/elastic/peer.hpp"

namespace ladder {
namespace {

// Passes on what it receives, and flips a bit in the messages with these numbers, from 0.
class Relay {
 public:
  Relay(const std::string& to, std::set<int> damaged)
      : inbox_(context_, zmq::socket_type::pull), outbox_(context_, zmq::socket_type::push) {
    inbox_.set(zmq::sockopt::rcvtimeo, 10);
    inbox_.bind("tcp://127.0.0.1:*");
    address_ = inbox_.get(zmq::sockopt::last_endpoint);
    outbox_.set(zmq::sockopt::linger, 0);
    outbox_.connect(to);
    thread_ = std::thread([this, damaged = std::move(damaged)] {
      zmq::message_t message;
      for (int number = 0; !has_ended_;) {
        if (!inbox_.recv(message)) continue;
        if (damaged.contains(number++)) message.data<char>()[message.size() / 2] ^= 4;
        outbox_.send(message, zmq::send_flags::none);
      }
    });
  }
  ~Relay() {
    has_ended_ = true;
    thread_.join();
  }
  const std::string& address() const { return address_; }

 private:
  zmq::context_t context_;
  zmq::socket_t inbox_, outbox_;
  std::string address_;
  std::atomic<bool> has_ended_ = false;
  std::thread thread_;
};

bool exchange(Peer& one, Peer& other, const Quorum& of_one, const Quorum& of_other,
              const at::Tensor& values_of_one, const at::Tensor& values_of_other, double seconds) {
  one.mailbox.begin(of_one);
  other.mailbox.begin(of_other);
  auto first = std::async(std::launch::async, [&] {
    const at::NoGradGuard no_grad;
    return sum_over_contributors(values_of_one, of_one, one.worker, one.messenger, one.mailbox,
                                 seconds)
        .is_empty();
  });
  const at::NoGradGuard no_grad;
  const bool is_there = sum_over_contributors(values_of_other, of_other, other.worker,
                                              other.messenger, other.mailbox, seconds)
                            .is_empty();
  return first.get() && is_there;
}

TEST(Damage, APieceThatIsDamagedFailsTheRound) {
  for (const int damaged : {-1, 0, 3}) {
    Peer one(0), other(1);
    Relay relay(other.messenger.address(), {damaged});
    const std::int64_t numel = 500'000;
    const at::Tensor a = at::ones({numel}), b = at::ones({numel}) * 2;
    const Timer timer;
    const bool is_there =
        exchange(one, other, quorum_of_two(one.messenger.address(), relay.address()),
                 quorum_of_two(one.messenger.address(), other.messenger.address()), a, b, 0.7);
    EXPECT_EQ(is_there, damaged == -1) << damaged;
    EXPECT_LT(timer.seconds(), 5);
    EXPECT_EQ(other.messenger.num_refused(), damaged == -1 ? 0 : 1);
    if (!is_there) continue;
    EXPECT_TRUE(a.equal(at::full({numel}, 3, at::kFloat)));
    EXPECT_TRUE(b.equal(at::full({numel}, 3, at::kFloat)));
  }
}

// Whoever heals asks again.
TEST(Damage, ADamagedPieceOfAStateIsSentAgain) {
  Peer donor(0), healing(1);
  Relay relay(healing.messenger.address(), {0, 2, 5});
  const std::int64_t numel = 500'000;
  const at::Tensor given = at::arange(numel, at::kFloat), taken = at::zeros({numel});
  Quorum quorum = quorum_of_two(donor.messenger.address(), relay.address());
  quorum.members[0].state_hash = shared_hash(state_of(given));
  quorum.members[1].donor = 0;
  healing.mailbox.begin(quorum);
  donor.server.serve(quorum, take_snapshot(state_of(given)));
  EXPECT_TRUE(heal(
      quorum, 1, state_of(taken), healing.messenger, healing.mailbox, 5, [] { return true; },
      say_nothing));
  EXPECT_TRUE(taken.equal(given));
  EXPECT_EQ(healing.messenger.num_refused(), 3);
}

// One that is no member, or heals from another, gets nothing.
TEST(Damage, AStateIsGivenToWhomItIsMeantFor) {
  Peer donor(0), healing(1);
  const WorkerState state = state_of(at::zeros({100}));
  Quorum quorum = quorum_of_two(donor.messenger.address(), healing.messenger.address());
  donor.server.serve(quorum, take_snapshot(state));  // nobody heals in this quorum
  quorum.members[1].donor = 0;
  healing.mailbox.begin(quorum);
  EXPECT_FALSE(heal(
      quorum, 1, state, healing.messenger, healing.mailbox, 0.3, [] { return true; }, say_nothing));
  EXPECT_EQ(donor.messenger.num_bytes_sent(), 0);
}

}  // namespace
}  // namespace ladder
