// For tests: what a worker has to talk to others, without a lighthouse; and a lighthouse.
#pragma once

#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "step9_diloco/elastic/lighthouse.hpp"
#include "step9_diloco/elastic/message.hpp"
#include "step9_diloco/elastic/messenger.hpp"
#include "step9_diloco/elastic/snapshot.hpp"

namespace ladder {

struct Peer {
  explicit Peer(int worker_number) : worker(worker_number) {}
  int worker;
  Mailbox mailbox{1 << 28, 1 << 28};
  Messenger messenger{
      {}, "", [this](const Message& message) { mailbox.deliver(message); }, say_nothing};
};

// A slow or faulty link: passes on the messages that it receives, at so many bytes a second. What it
// has not passed on yet waits at the sender.
class Relay {
 public:
  // Flips a bit in the messages with the numbers in `damaged`, from 0.
  Relay(const std::string& to, double bytes_per_s, const std::set<int>& damaged = {}) {
    for (zmq::socket_t* const socket : {&inbox_, &outbox_}) {
      socket->set(zmq::sockopt::linger, 0);
      socket->set(zmq::sockopt::rcvhwm, 1);
      socket->set(zmq::sockopt::rcvbuf, 64 * 1024);
      socket->set(zmq::sockopt::rcvtimeo, 10);
      socket->set(zmq::sockopt::sndtimeo, 10);
    }
    inbox_.bind("tcp://127.0.0.1:*");
    address_ = inbox_.get(zmq::sockopt::last_endpoint);
    outbox_.connect(to);
    thread_ = std::thread([this, bytes_per_s, damaged] {
      zmq::message_t message;
      for (int number = 0; !has_ended_;) {
        if (!inbox_.recv(message)) continue;
        const auto num_bytes = static_cast<std::int64_t>(message.size());
        if (damaged.contains(number++)) message.data<char>()[message.size() / 2] ^= 4;
        wait_for_turn(static_cast<double>(num_bytes) / bytes_per_s);
        while (!has_ended_ && !outbox_.send(message, zmq::send_flags::none)) continue;
        num_bytes_ += num_bytes;
      }
    });
  }
  ~Relay() {
    has_ended_ = true;
    thread_.join();
  }

  const std::string& address() const { return address_; }
  std::int64_t num_bytes() const { return num_bytes_; }  // passed on

 private:
  using Clock = std::chrono::steady_clock;

  // A late thread may catch up, by up to 50 ms.
  void wait_for_turn(double seconds) {
    end_ = std::max(end_, Clock::now() - std::chrono::milliseconds(50)) +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    std::this_thread::sleep_until(end_);
  }

  zmq::context_t context_;
  zmq::socket_t inbox_{context_, zmq::socket_type::pull};
  zmq::socket_t outbox_{context_, zmq::socket_type::push};
  std::string address_;
  std::atomic<bool> has_ended_ = false;
  std::atomic<std::int64_t> num_bytes_ = 0;
  Clock::time_point end_;  // of what has been passed on so far
  std::thread thread_;
};

// Sends what it likes, to whom it likes.
struct Stranger {
  Stranger(
      const std::string& address, zmq::socket_type type,
      const std::function<void(zmq::socket_t&)>& prepare = [](zmq::socket_t&) {})
      : socket(context, type) {
    socket.set(zmq::sockopt::linger, 0);
    prepare(socket);
    socket.connect(address);
  }
  void send(const std::string& bytes, bool has_more_parts = false) {
    const auto more = has_more_parts ? zmq::send_flags::sndmore : zmq::send_flags::none;
    socket.send(zmq::buffer(bytes), more | zmq::send_flags::dontwait);  // perhaps nobody lets it in
  }
  zmq::context_t context{1};
  zmq::socket_t socket;
};

// Two members, where messages to them go to these addresses.
inline Quorum quorum_of_two(const std::string& to_0, const std::string& to_1) {
  return {.lighthouse_epoch = 1,
          .id = 1,
          .members = {{.worker = 0, .process = 1, .address = to_0},
                      {.worker = 1, .process = 2, .address = to_1}}};
}

// A shared tensor, and counters, of which the first counts outer steps.
inline WorkerState state_of(const at::Tensor& tensor, std::vector<std::int64_t>& counters) {
  return {.shared = {{"shared", tensor}},
          .outer_steps = [&] { return counters[0]; },
          .counters = [&] { return counters; },
          .set_counters = [&](const std::vector<std::int64_t>& values) { counters = values; }};
}

// Worker 1, which has zeros, heals from worker 0.
struct Healing {
  explicit Healing(const at::Tensor& values) : given(values), taken(at::zeros_like(values)) {
    quorum.members[0].state_hash = shared_hash(given_state());
    quorum.members[1].donor = 0;
    receiver.mailbox.begin(quorum);
  }
  WorkerState given_state() { return state_of(given, given_counters); }
  void give() { donor.give(quorum, take_snapshot(given_state())); }
  // All that is given has arrived, or nothing has changed.
  bool heal(
      double seconds, const std::function<bool()>& goes_on = [] { return true; }) {
    const bool is_healed = ladder::heal(quorum, 1, state_of(taken, taken_counters),
                                        receiver.mailbox, seconds, goes_on, say_nothing);
    check(is_healed ? taken.equal(given) && taken_counters == given_counters
                    : taken.count_nonzero().item<std::int64_t>() == 0 && taken_counters[0] == 0,
          "a state is there in part");
    return is_healed;
  }
  at::Tensor given, taken;
  std::vector<std::int64_t> given_counters = {0, 12}, taken_counters = {0, 0};
  Peer sender{0}, receiver{1};
  Donor donor{0, sender.messenger};
  Quorum quorum = quorum_of_two(sender.messenger.address(), receiver.messenger.address());
};

// Serves in a thread of its own, unless it is frozen.
class TestLighthouse {
 public:
  explicit TestLighthouse(int min_workers, double join_timeout_s,
                          const std::optional<CurveKeys>& keys = {})
      : server_(0, /*is_public=*/false,
                {.min_workers = min_workers,
                 .stale_s = stale_seconds(join_timeout_s),
                 .join_timeout_s = join_timeout_s},
                say_nothing, keys) {
    thread_ = std::thread([this] {
      while (!has_ended_) {
        const std::chrono::milliseconds pause(2);
        is_frozen_ ? std::this_thread::sleep_for(pause) : server_.serve(pause);
      }
    });
  }
  ~TestLighthouse() {
    has_ended_ = true;
    thread_.join();
  }
  TestLighthouse(const TestLighthouse&) = delete;
  TestLighthouse& operator=(const TestLighthouse&) = delete;

  void freeze() { is_frozen_ = true; }
  void go_on() { is_frozen_ = false; }
  std::string address() const { return concat("127.0.0.1:", server_.port()); }

 private:
  LighthouseServer server_;
  std::atomic<bool> has_ended_ = false, is_frozen_ = false;
  std::thread thread_;
};

}  // namespace ladder
