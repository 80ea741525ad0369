// For tests: what a worker has to talk to others, without a lighthouse; and a lighthouse.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "step9_diloco/elastic/lighthouse.hpp"
#include "step9_diloco/elastic/mailbox.hpp"
#include "step9_diloco/elastic/messenger.hpp"
#include "step9_diloco/elastic/snapshot_transfer.hpp"

namespace ladder {

struct Peer {
  explicit Peer(int worker_number)
      : worker(worker_number),
        server(worker_number),
        messenger(
            {}, "",
            [this](const Message& message) {
              if (message.kind == MessageKind::kRequest) {
                server.answer(message, messenger);
              } else {
                mailbox.deliver(message);
              }
            },
            say_nothing) {}
  int worker;
  Mailbox mailbox{1 << 28, 1 << 28};
  SnapshotServer server;
  Messenger messenger;
};

// Two members, where messages to them go to these addresses.
inline Quorum quorum_of_two(const std::string& to_0, const std::string& to_1) {
  return {.lighthouse_epoch = 1,
          .id = 1,
          .members = {{.worker = 0, .epoch = 1, .address = to_0},
                      {.worker = 1, .epoch = 2, .address = to_1}}};
}

// Nothing but a shared tensor.
inline WorkerState state_of(const at::Tensor& tensor) {
  return {.shared = {{"shared", tensor}},
          .outer_steps = [] { return std::int64_t{0}; },
          .counters = [] { return std::vector<std::int64_t>{0}; },
          .set_counters = [](const std::vector<std::int64_t>&) {}};
}

// Serves in a thread of its own, unless it is frozen.
class TestLighthouse {
 public:
  explicit TestLighthouse(const std::optional<CurveKeys>& keys = {})
      : server_(0, /*is_public=*/false, say_nothing, keys) {
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
