// Averages with whoever is there: workers may die, hang, come back and join at any time.
//
// Each worker is a process of its own, a world of one rank. A round of the loop calls
//
//   form_quorum   asks the lighthouse who takes part, and waits. A worker that is behind, or whose
//                 state differs from that of most others, receives the state of a healthy one first
//   start         sends the values directly to the others, in a thread
//   finish        waits until the sum is there and the members have decided: commit or abort
//
// A death costs the others at most one time-out: a worker that dies while it trains is not waited
// for once its heartbeats are stale; one that dies in a round makes that round fail after
// --round-timeout, and the next one goes on without it. After a commit, all members have the same
// global copy and outer momentum, to the bit. After an abort nobody has moved.
//
// The object sends heartbeats from join() until end() or the destructor.
// Memory: at most twice the values in flight, in buffers; a copy of the state for each member that
// heals from this one, and for this one while it heals.
#pragma once

#include <ATen/core/Tensor.h>

#include <future>
#include <memory>
#include <optional>
#include <string>

#include "common/train/elastic_options.hpp"
#include "step9_diloco/averager.hpp"
#include "step9_diloco/elastic/decision.hpp"
#include "step9_diloco/elastic/log.hpp"
#include "step9_diloco/elastic/mailbox.hpp"
#include "step9_diloco/elastic/membership.hpp"
#include "step9_diloco/elastic/messenger.hpp"
#include "step9_diloco/elastic/snapshot.hpp"
#include "step9_diloco/elastic/store.hpp"

namespace ladder {

// What happened so far.
struct ElasticCounts {
  std::int64_t num_commits = 0, num_failures = 0, num_heals = 0;
  double waiting_s = 0;             // in form_quorum() and finish()
  std::int64_t num_bytes_sent = 0;  // to other workers, headers included
};

class ElasticAverager final : public Averager {
 public:
  // `log` may be called from several threads at once. Throws UsageError: see check_elastic().
  ElasticAverager(const ElasticOptions& options, Log log);
  ~ElasticAverager() override;

  // Joins the group with this state. `description`: of model and options, which must be the same
  // for all workers; names and sizes of the state's tensors are compared as well. Call it once,
  // before the first round. Lifetime: what `state` refers to outlives the averager.
  void join(WorkerState state, const std::string& description);

  // The training thread is alive: call it after every inner step.
  void note_progress();

  // What this worker's next average weighs, with --merge tokens: the tokens it has seen since the
  // last one. 1 unless called.
  void weigh(double num_tokens) { weight_ = num_tokens; }

  // Throws CheckError after --patience without a quorum, or when the group refuses this worker.
  void form_quorum() override;
  void start(at::Tensor values) override;
  std::optional<int> finish() override;

  // The training is finished: helps those to heal that are behind, waiting for others for about a
  // join time-out at most, and leaves without costing anybody a time-out.
  void end();

  const Quorum& quorum() const { return quorum_; }  // the last one
  const ElasticCounts& counts() const { return counts_; }

 private:
  struct Group;  // what exists from join() on
  void ask(bool has_finished, double seconds);
  bool run_round(const at::Tensor& values);

  ElasticOptions options_;
  Log log_;
  WorkerState state_;
  double weight_ = 1;
  std::unique_ptr<Group> group_;
  Quorum quorum_;
  ElasticCounts counts_;
  std::future<bool> round_;  // committed?
};

}  // namespace ladder
