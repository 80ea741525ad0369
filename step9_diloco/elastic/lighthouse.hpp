// Where workers find one another, and where each round is decided.
//
// The lighthouse hears the workers' reports, measures their ages by its own clock, and decides who
// takes part in the next round (quorum.hpp), and then whether its outer step is taken. It carries
// no data: its load grows with the number of workers and rounds, never with the model.
//
// Training survives its end: a lighthouse that is started again knows nothing, and is a new epoch,
// the time of its start. Workers come back to it by themselves, and a round that was not decided is
// over: whoever asks for it learns that it is unknown.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "step9_diloco/elastic/listener.hpp"
#include "step9_diloco/elastic/log.hpp"
#include "step9_diloco/elastic/quorum.hpp"
#include "step9_diloco/elastic/report.hpp"

namespace ladder {

// All that it decides. Nothing here communicates; not thread-safe.
class Lighthouse {
 public:
  // `epoch`: the time of its start. `is_public`: it listens to other machines. `clock`: seconds,
  // from any start.
  Lighthouse(std::uint64_t epoch, bool is_public, Log log, std::function<double()> clock);

  // Hears the report, counts its vote, and answers. A report that is older than the worker's last
  // one, or of a process that has to leave its place to another, changes nothing.
  Answer answer(const Report& report);

  // Forms the next quorum if it is time, and returns it: each member learns of it when it asks. The
  // round before it, if it is still open, is aborted. To be called every few milliseconds.
  std::optional<Quorum> form_quorum();

  std::uint64_t epoch() const { return epoch_; }

 private:
  struct Worker {
    Report report;                                   // the last one
    double beat_s = 0, progress_s = 0, asked_s = 0;  // when it last reported, moved on, asked
    std::optional<Quorum> quorum;        // the last one that it is a member of, in this epoch
    std::optional<std::uint64_t> rival;  // an earlier epoch that has also reported
  };
  struct Round {
    Quorum quorum;
    std::set<int> voters = {};  // for it
    Decision decision = Decision::kOpen;
  };

  std::string refusal_of(const Report& report) const;
  bool is_outdated(const Report& report);
  void hear(const Report& report);
  Decision decide(const Report& report);
  Round* find(const QuorumNumber& number);  // null if it is not known
  Heartbeat known(const Worker& worker);
  void leave_out_unreachable(std::vector<WorkerStatus>& workers, const QuorumRules& rules);
  void publish(Quorum& quorum);

  bool is_public_;
  Log log_;
  std::function<double()> clock_;
  std::uint64_t epoch_;
  std::map<int, Worker> workers_;
  std::set<int> left_out_;
  std::set<std::pair<int, std::uint64_t>> past_epochs_;  // of each worker
  double watching_since_s_;  // somebody is there again, or it could not watch for a while before
  double last_look_s_;
  std::string fingerprint_;  // the first worker's; others must have the same
  QuorumCounter counter_;
  std::deque<Round> rounds_;  // the last ones: all but the very last are decided
};

// A lighthouse that listens on a port, 0 for any free one: on the loopback only, unless
// `is_public`. With keys it hears only those that have them. Throws CheckError if it cannot listen.
class LighthouseServer {
 public:
  LighthouseServer(int port, bool is_public, Log log, const std::optional<CurveKeys>& keys = {});

  // Waits so long for reports, answers those that are there, and forms a quorum if it is time.
  void serve(std::chrono::milliseconds patience);

  int port() const { return listener_.port(); }

 private:
  void answer_report();

  Log log_;
  zmq::context_t context_{1};
  Listener listener_;
  Lighthouse lighthouse_;
  bool has_warned_ = false;  // of what is no report
};

}  // namespace ladder
