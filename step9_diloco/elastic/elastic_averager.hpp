// Averages with whoever is there: workers may die, hang, come back and join at any time.
//
// Each worker is a process of its own, a world of one rank. A round of the loop calls
//
//   form_quorum   asks the lighthouse who takes part, and waits. A worker that is behind, or whose
//                 state differs from that of most others, receives the state of a healthy one first
//   start         sends the values directly to the others, in a thread: nobody needs to poll
//   finish        waits until the sum is there and the members have decided: commit or abort
//
// After a commit, all members have the same global copy and outer momentum, to the bit. After an
// abort nobody has moved.
//
// A sick worker, one whose values are not finite, must not make the others sick. It leaves before
// it sends anything, and ends with an error. A sum that is not finite is not an average: all vote
// against it.
//
// The object reports to the lighthouse from join() until end() or the destructor.
// Memory: at most twice the values in flight, in buffers; a copy of the state while others heal from
// this one, and while this one heals.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "common/core/timer.hpp"
#include "step9_diloco/averager.hpp"
#include "step9_diloco/elastic/elastic_options.hpp"
#include "step9_diloco/elastic/exchange.hpp"
#include "step9_diloco/elastic/log.hpp"
#include "step9_diloco/elastic/quorum.hpp"
#include "step9_diloco/elastic/report.hpp"
#include "step9_diloco/elastic/snapshot.hpp"

namespace ladder {

struct GroupLinks;

// What happened so far.
struct ElasticCounts {
  std::int64_t num_commits = 0, num_failures = 0, num_heals = 0;
  std::int64_t num_bytes_sent = 0;  // to other workers, headers included
};

class ElasticAverager final : public Averager {
 public:
  // Both logs may be called from several threads at once; `log_routine` with what happens in every
  // round.
  ElasticAverager(const ElasticOptions& options, Log log, Log log_routine = say_nothing);
  ~ElasticAverager() override;

  // To be called before the first round. `state`: what a worker that is behind receives of another.
  // `settings`: what must be the same for all, as must names and sizes of the state's tensors.
  // Lifetime: what `state` refers to outlives the averager.
  void join(const WorkerState& state, GroupSettings settings);

  // The run, and the quorum in which the state was agreed on last, which says how new the state is:
  // they belong into checkpoints. After a resume, restore() is to be called before join().
  const History& history() const { return history_; }
  void restore(const History& history) { history_ = history; }

  // An inner step was taken: the training thread is alive. Throws CheckError when the group refuses
  // this worker before it has taken part in anything.
  void note_step();

  // Who takes part? To be called before the values of a round are computed, for it may replace this
  // worker's whole state by that of another one. Throws CheckError as note_step() does, or when the
  // worker's own state is not finite.
  //
  // False: there is no average to start, and no round to finish; what the worker has learned goes
  // on. Fewer than the lighthouse's --min-workers would have contributed: the round becomes longer,
  // and those that have healed contribute at its end. Or it gives up: without a quorum for
  // --patience, or refused by a group that it has trained with, it says so and asks the run to stop
  // (StopSignal); finish() does so without a committed round for so long. When the run is asked to
  // stop, both wait no longer.
  bool form_quorum();
  bool has_given_up() const { return has_given_up_; }
  // Throws CheckError if a value is not finite; the round then fails for the others.
  void start(at::Tensor values) override;
  // When the run is asked to stop, it votes against the round at once, unless all have voted for
  // it.
  std::optional<int> finish() override;

  // The training is finished, and saved: helps those to heal that are behind, waiting for others
  // for two join time-outs at most, and leaves without costing anybody a time-out. A run that is
  // asked to stop leaves at once. Throws CheckError if not one of its rounds was committed.
  void end();

  const Quorum& quorum() const { return quorum_; }  // the last one
  const ElasticCounts& counts() const { return counts_; }

 private:
  bool ask(bool has_finished, double seconds);
  bool heal_from_donor();
  void give_up(const std::string& reason);
  void check_progress(bool is_committed);
  bool has_enough_contributors();
  void abandon_round();
  void say_missing(const Missing& missing);
  void help_those_behind();
  bool run_round(const at::Tensor& values);

  ElasticOptions options_;
  Log log_, log_routine_;
  WorkerState state_;
  std::size_t num_contributors_ = 0;   // to the last round
  std::unique_ptr<GroupLinks> links_;  // from join() on
  Quorum quorum_;
  History history_;
  bool has_given_up_ = false;
  ElasticCounts counts_;
  Timer since_commit_;
  int num_failures_in_a_row_ = 0;
  std::atomic<bool> is_abandoned_ = false;  // the round in flight
  std::future<bool> round_;                 // committed?
};

}  // namespace ladder
