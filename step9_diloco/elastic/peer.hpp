// For tests: what a worker has to talk to others, without a lighthouse.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

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

}  // namespace ladder
