// Where workers find one another: a key-value store, and the loop that forms quorums.
//
// The lighthouse reads the workers' heartbeats, measures their ages by its own clock, and decides
// who takes part in the next round. It carries no data: its load grows with the number of workers
// and rounds, never with the model. Training survives its end: a lighthouse that is started again
// is a new epoch, the time of its start, with an empty store. Workers come back to it by themselves, and a round that
// was not decided is over, for its keys are gone.
//
// Before a quorum is published, the key of its decision exists (see decision.hpp), and the round
// before it, if it is still open, is aborted.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/core/timer.hpp"
#include "step9_diloco/elastic/elastic_options.hpp"
#include "step9_diloco/elastic/log.hpp"
#include "step9_diloco/elastic/quorum.hpp"
#include "step9_diloco/elastic/records.hpp"
#include "step9_diloco/elastic/seal.hpp"

namespace c10d {
class TCPStore;
}

namespace ladder {

class Lighthouse {
 public:
  // Listens on that port, 0 for any free one; on the loopback only, unless `is_public`: then the
  // workers should have a key, which `seal` is made of. Throws CheckError if it cannot.
  Lighthouse(int port, bool is_public, Log log, Seal seal = Seal());
  ~Lighthouse();
  Lighthouse(const Lighthouse&) = delete;
  Lighthouse& operator=(const Lighthouse&) = delete;

  // Looks at the heartbeats once; publishes a quorum if there is one. To be called every few
  // milliseconds.
  void poll();

  int port() const { return port_; }
  std::uint64_t lighthouse_epoch() const { return lighthouse_epoch_; }

 private:
  struct Worker {  // as last seen
    BeatRecord record;
    std::string text;
    Timer since_beat, since_progress, since_asking;
    std::optional<Quorum> answer;  // the last one that it is a member of, in this epoch
  };

  void leave_out_unheard(std::vector<Sighting>& sightings, const QuorumRules& rules);
  void set(const std::string& key, const std::string& text);
  bool has_fingerprint();
  void read_heartbeats();
  bool is_outdated(const BeatRecord& record) const;
  void see(const BeatRecord& record, const std::string& text);
  Heartbeat known(const Worker& worker) const;
  void publish(Quorum quorum);
  void forget_old_rounds();

  Log log_;
  Seal seal_;
  bool has_warned_ = false;  // of a value without the right seal
  std::uint64_t lighthouse_epoch_;
  int port_ = 0;
  c10::intrusive_ptr<c10d::TCPStore> store_;
  std::map<int, Worker> workers_;
  std::set<int> unheard_;
  std::set<std::pair<int, std::uint64_t>> past_epochs_;  // of each worker
  Timer watching_;  // since somebody was there again, or since it could not watch for a while
  Timer since_poll_;
  std::string fingerprint_;
  QuorumCounter counter_;
  QuorumNumber committed_;     // the last round, if it has ended in a commit
  std::deque<Quorum> rounds_;  // whose keys are still in the store
};

}  // namespace ladder
