// How a snapshot travels from a healthy worker, the donor, to one that heals.
//
// Whoever heals asks for it piece by piece: for the first one until it is there, for its donor may
// not have heard of the quorum yet; then for a window of pieces, and for another one with each that
// arrives. So the donor never has more than a window in its queue, and a slow link is always busy.
// TCP carries all that it can; what is lost all the same, with a connection that breaks or because
// it was damaged, is asked for again once nothing has arrived for a quarter of the deadline. The
// pieces go into a buffer of its own; its tensors change only once all is there and has no fault.
// Until then it can still turn to another donor.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <vector>

#include "common/core/timer.hpp"
#include "step9_diloco/elastic/log.hpp"
#include "step9_diloco/elastic/mailbox.hpp"
#include "step9_diloco/elastic/messenger.hpp"
#include "step9_diloco/elastic/quorum.hpp"
#include "step9_diloco/elastic/snapshot.hpp"

namespace ladder {

// The donor's side. Thread-safe.
class SnapshotServer {
 public:
  explicit SnapshotServer(int worker) : worker_(worker) {}

  // Serves this snapshot to those that heal from this worker in this quorum.
  void serve(const Quorum& quorum, InFlightBuffer snapshot);
  // Frees the snapshots that nobody needs any more: all their receivers are members of this later
  // quorum, or have asked for nothing in the last `seconds`.
  void forget(const Quorum& later, double seconds);
  std::set<QuorumNumber> quorums();  // whose snapshots are served
  // Answers a request with a piece, or ignores it: a quorum of which nothing is served, or a sender
  // that does not heal from this worker.
  void answer(const Message& request, Messenger& messenger);
  // Asked for within this time, or so recently that pieces may still be on their way.
  bool is_serving(double idle_seconds);

 private:
  struct Served {
    Quorum quorum;
    InFlightBuffer snapshot;
    Timer since_request;
    Timer since_start = {};
    double asked_s = 0;  // from the start to the last request
    std::int64_t num_requests = 0;
  };

  int worker_;
  std::mutex mutex_;
  std::vector<Served> served_;
};

// The side that heals: receives the state of its donor and adopts it. False, and nothing is
// changed, if nothing arrives for `seconds`, or a snapshot with a fault does. `goes_on` is called
// at every piece, and all the time while there is none; if it says no, that is the end, too.
bool heal(const Quorum& quorum, int worker, const WorkerState& state, Messenger& messenger,
          Mailbox& mailbox, double seconds, const std::function<bool()>& goes_on, const Log& log);

}  // namespace ladder
