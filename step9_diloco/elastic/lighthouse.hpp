// Where workers find one another, and where each round is decided.
//
// The lighthouse hears the workers' reports, measures their ages by its own clock, and decides who
// takes part in the next round (quorum.hpp), and then whether its outer step is taken. It carries
// no data: its load grows with the number of workers and rounds, never with the model.
//
// Training survives its end: a lighthouse that is started again knows nothing, and is a new epoch,
// the time of its start. Workers come back to it by themselves, and a round that was not decided is
// over: whoever asks for it learns that it is unknown.
//
// Whoever does not belong to the group is refused, and changes nothing: one with other settings or
// of another run, and a process with a number whose process is still heard. The settings are those
// of the first worker, and the run is that of the first that has a state of one. But until the
// first quorum, a worker whose state of a run is newer than all others takes over: the first may
// have been away, and must not keep a fresh worker out. The others are then refused if they differ.
// If nobody has a state of a run, the first quorum founds one. From the first quorum on, only states
// of the run are agreed on, and a worker without any heals. Once all workers have left, the next
// may belong to another group.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "step9_diloco/elastic/listener.hpp"
#include "step9_diloco/elastic/log.hpp"
#include "step9_diloco/elastic/quorum.hpp"
#include "step9_diloco/elastic/report.hpp"

namespace ladder {

// Sent in place of a report: what does the lighthouse know?
inline constexpr const char* kStatusQuestion = "status";

// All that it decides. Nothing here communicates; not thread-safe.
class Lighthouse {
 public:
  // `epoch`: the time of its start. `is_public`: it listens to other machines. `rules`: number of
  // workers and run are those that it hears of. `clock`: seconds, from any start.
  Lighthouse(std::uint64_t epoch, bool is_public, const QuorumRules& rules, Log log,
             std::function<double()> clock);

  // Hears the report, counts its vote, and answers. A report that is older than the worker's last
  // one changes nothing.
  Answer answer(const Report& report);
  // answer() as texts; also tells a worker that it has another version, and whoever sends
  // kStatusQuestion its status(). Throws CheckError for anything else.
  std::string answer_text(const std::string& text);

  // For people: what it knows of each worker, and why there is no quorum.
  std::string status() const;

  // Forms the next quorum if it is time, and returns it: each member learns of it when it asks. The
  // round before it, if it is still open, is aborted. To be called every few milliseconds.
  std::optional<Quorum> form_quorum();

  std::uint64_t epoch() const { return epoch_; }

 private:
  struct Worker {
    Report report;                                   // the last one
    double beat_s = 0, progress_s = 0, asked_s = 0;  // when it last reported, moved on, asked
    std::optional<Quorum> quorum;            // the last one that this process is a member of
    std::map<std::uint64_t, double> rivals;  // other processes with its number: since when
  };
  struct Round {
    Quorum quorum;
    std::set<int> voters = {};  // for it
    Decision decision = Decision::kOpen;
  };

  std::string refusal_of(const Report& report) const;
  bool may_take_over(const Heartbeat& beat) const;
  bool may_join(const Report& report, Answer& answer);
  void hear(const Report& report);
  void forget_group();
  void forget_run();
  bool was_away(double pause_s) const { return pause_s > rules_.stale_s / 2; }
  Decision decide(const Report& report);
  Round* find(const QuorumNumber& number);  // null if it is not known
  const Round* find(const QuorumNumber& number) const;
  std::vector<WorkerStatus> look() const;
  Heartbeat known(const Worker& worker) const;
  void say_why(const std::vector<WorkerStatus>& workers);
  void publish(Quorum& quorum);

  bool is_public_;
  QuorumRules rules_;
  Log log_;
  std::function<double()> clock_;
  std::uint64_t epoch_;
  std::map<int, Worker> workers_;
  std::set<std::uint64_t> left_;  // processes that have
  GroupSettings settings_;        // the group's; empty if there is none
  std::uint64_t new_run_ = 0;     // that this lighthouse has founded; rules_.run once it is begun
  bool is_settled_ = false;       // a quorum was formed: nobody takes over any more
  std::string why_;               // there is no quorum,
  double why_since_s_ = 0;        // since when
  bool is_why_said_ = false;
  double watching_since_s_;  // somebody is there again, or it was away before
  double awake_since_s_;     // it was away before: this process was stopped
  double last_look_s_;
  QuorumCounter counter_;
  std::deque<Round> rounds_;  // the last ones: all but the very last are decided
};

// A lighthouse that listens on a port, 0 for any free one: on the loopback only, unless
// `is_public`. With keys it hears only those that have them. Throws CheckError if it cannot listen.
class LighthouseServer {
 public:
  LighthouseServer(int port, bool is_public, const QuorumRules& rules, Log log,
                   const std::optional<CurveKeys>& keys = {});

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
