// What connects a worker to its group: the lighthouse, and the other workers.
#pragma once

#include <optional>
#include <string>

#include "step9_diloco/elastic/curve_keys.hpp"
#include "step9_diloco/elastic/elastic_options.hpp"
#include "step9_diloco/elastic/log.hpp"
#include "step9_diloco/elastic/mailbox.hpp"
#include "step9_diloco/elastic/membership.hpp"
#include "step9_diloco/elastic/messenger.hpp"
#include "step9_diloco/elastic/snapshot_transfer.hpp"
#include "step9_diloco/elastic/store.hpp"
#include "step9_diloco/elastic/worker_state.hpp"

namespace ladder {

struct GroupLinks {
  // Sends heartbeats from here on. `description` and the state's names and sizes are compared with
  // those of the other workers.
  GroupLinks(const ElasticOptions& options, const WorkerState& state,
             const QuorumNumber& last_quorum, const std::string& description, const Log& log);
  void receive(const Message& message);  // of another worker

  HostPort lighthouse;
  std::optional<CurveKeys> keys;
  Store store;
  Mailbox mailbox;
  SnapshotServer server;
  Messenger messenger;
  Membership membership;
};

}  // namespace ladder
