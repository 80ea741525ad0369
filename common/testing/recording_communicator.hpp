// A Communicator for the judge that records what is started and what is waited for.
//
// Collective, lifetime, and what it refuses: as LockstepCommunicator. Its agreements block, even
// inside a hook, but they do not count as waits of the answer. finish() also waits for every
// operation that the answer never waited for.
#pragma once

#include <c10/core/Storage.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "common/testing/lockstep_communicator.hpp"

namespace ladder {

enum class Network {
  kAsItIs,  // test() and wait() are the inner communicator's
  kSlow,    // test() is false until somebody waits: what is on its way at any moment depends on the
            // answer, not on timing. To call test() in a loop is to wait.
  kInstant,  // test() is always true
};

struct WorkCounts {
  int num_started = 0;
  int most_on_their_way = 0;
  int num_tests = 0;       // calls of test()
  int num_waited_for = 0;  // operations, however often
  int num_dropped = 0;     // whose wait() was never called before they were destroyed
  int num_on_their_way() const { return num_started - num_waited_for; }
};

// The tensor that a collective reads and writes (of a reduce_scatter and an all_gather the full
// one). It may be gone: nothing is kept alive.
struct StartedOperation {
  const c10::StorageImpl* storage = nullptr;
  const void* data = nullptr;
  std::int64_t numel = 0;
};

struct Recording : WorkCounts {
  std::vector<StartedOperation> started;
};

class RecordingCommunicator : public LockstepCommunicator {
 public:
  using LockstepCommunicator::LockstepCommunicator;

  const Recording& recording() const { return *recording_; }
  void forget() { *recording_ = {}; }
  // Messages and collectives from here on go through it.
  void set_network(Network network) { network_ = network; }
  void finish();

  WorkPtr start(const Operation& operation) override;

 private:
  class RecordedWork;
  using Works = std::vector<std::shared_ptr<Work>>;

  Network network_ = Network::kAsItIs;
  // A Work may outlive its communicator: it shares these.
  std::shared_ptr<Recording> recording_ = std::make_shared<Recording>();
  std::shared_ptr<Works> on_their_way_ = std::make_shared<Works>();
};

}  // namespace ladder
