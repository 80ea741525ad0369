// Who takes part in a round: decided by the lighthouse alone, from the workers' heartbeats.
//
// A worker that reaches the end of its round asks for a quorum and waits. The quorum is formed once
// nobody is worth waiting for any more:
//
//   lost       no heartbeat for a while: killed, or its machine is gone
//   hung       heartbeats arrive (a thread sends them), but no inner step for the join time-out
//   training   worth waiting for, until the first that asked has waited for the join time-out
//   healing    worth waiting for as well: without that, it would be behind again as soon as it is healed
//   ahead      training or healing, and its state is newer than that of all who ask: waited for
//              until it asks too, is hung or is lost
//
// A quorum is never formed by half or fewer of the workers that train or ask: while one worker is
// slow, a fast one must not go off alone.
//
// The newer of two states is the one that was agreed on in the later quorum; of two of the same
// quorum, the one with more outer steps: it has that round's. Raft compares logs in this way
// (section 5.4.1), by the term of the last entry. Of the newest states, the one whose hash most
// members at this outer step share is agreed on. Members that have it are healthy: they contribute
// to the average and decide on it. All others heal: each receives the state of a healthy one, and
// then hears the round's average.
//
// Invariant: a committed outer step is never undone while a fresh worker has it, one that has been
// neither lost nor hung since a quorum agreed on its state. For each later quorum waited for it, or
// was formed by states that came after its own. An outer step that no fresh worker has may be lost.
//
// A lighthouse that has just started knows nobody. So at first it waits for all workers that there
// can be, though not longer than heartbeats take to become stale; and again when somebody comes
// back after all were lost. README.md shows the accident that each of these rules excludes.
//
// Whoever has no state of the group's run is behind all that have one, and does not begin anew what
// a worker that is away may still have.
//
// A worker that has finished its training asks as well, for a while: others may be behind, and heal
// from it. It contributes nothing.
//
// Nothing here communicates.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ladder {

// Bounds of the numbers that workers and lighthouse tell each other, and that checkpoints keep. A
// reader refuses what is above them, so nothing above them is believed, and nothing is written that
// cannot be read back.
inline constexpr std::int64_t kMostCount = std::int64_t{1} << 40;  // of steps, rounds, reports
inline constexpr std::uint64_t kMostId = std::uint64_t{1} << 53;   // as JSON keeps it exactly

std::uint64_t random_id();              // from 1 to kMostId: nobody else draws the same
std::string id_text(std::uint64_t id);  // 14 hexadecimal digits

// Quorums in the order in which they were formed, also by one lighthouse after another.
struct QuorumNumber {
  std::uint64_t lighthouse_epoch = 0;
  std::int64_t id = 0;  // begins anew with each epoch

  auto operator<=>(const QuorumNumber&) const = default;
};

// Which history a state belongs to: the run, which has a number from its first quorum on, and the
// last quorum that agreed on the state.
struct History {
  std::uint64_t run = 0;  // 0: none yet
  QuorumNumber last_quorum = {};

  bool operator==(const History&) const = default;
};

// What a worker does, as it says itself.
enum class Phase { kTraining, kAsking, kHealing };

// What a worker says of itself. A process that starts again is another process of the same worker.
struct Heartbeat {
  int worker = 0;
  std::uint64_t process = 0;  // a random_id()
  Phase phase = Phase::kTraining;
  std::int64_t request = 0;       // quorums that this process has asked for, this one included
  std::int64_t last_ended = 0;    // the last of them whose round is over, as far as it goes
  bool has_finished = false;      // its training: it only helps others to heal
  std::int64_t progress = 0;      // grows with every inner step
  std::uint64_t run = 0;          // that its state belongs to; 0: to none yet
  QuorumNumber last_quorum = {};  // in which its state was agreed on: that it has, or heals to
  std::int64_t outer_steps = 0;   // committed ones of that state, as far as it knows
  std::string state_hash = {};    // of the global copy and the outer momentum, at its last request
  std::string address = {};       // where it receives data

  bool operator==(const Heartbeat&) const = default;
};

// A heartbeat, and what the lighthouse's clock says about it.
struct WorkerStatus {
  Heartbeat beat;
  double beat_age_s = 0;      // since a new heartbeat arrived
  double progress_age_s = 0;  // since its progress grew
  double asking_s = 0;        // since it asked, if it asks
};

struct QuorumRules {
  int num_workers = 0;  // that there can be
  // Members, those included that heal or have finished. If fewer contribute, they average nothing.
  int min_workers = 1;
  double stale_s = 1;         // a heartbeat older than this: lost
  double join_timeout_s = 1;  // how long to wait for one that trains; one without progress: hung
  // Only a state of this run is agreed on, unless all workers have lost it; 0: it is not founded yet.
  std::uint64_t run = 0;
};

// How often a worker reports, at least. Ten reports may be late or lost before it counts as lost.
double beat_seconds(double join_timeout_s);
double stale_seconds(double join_timeout_s);

bool is_lost(const WorkerStatus& seen, const QuorumRules& rules);
bool is_hung(const WorkerStatus& seen, const QuorumRules& rules);

struct Member {
  int worker = 0;
  std::uint64_t process = 0;
  std::int64_t request = 0;
  std::int64_t outer_steps = 0;
  std::string state_hash = {};
  std::string address = {};
  bool has_finished = false;
  std::optional<int> donor = {};  // the worker that it heals from; nothing for a healthy one

  bool operator==(const Member&) const = default;
};

struct Quorum {
  std::uint64_t lighthouse_epoch = 0;
  std::int64_t id = 0;
  std::uint64_t run = 0;
  std::int64_t outer_steps = 0;  // of the healthy members: the round's number
  bool is_enough = true;         // else fewer than the minimum contribute, and average nothing
  std::vector<Member> members;   // in the order of the workers

  QuorumNumber number() const { return {lighthouse_epoch, id}; }
  std::vector<Member> contributors() const;        // healthy, and not finished
  std::vector<Member> receivers(int donor) const;  // that heal from this worker
  const Member& member(int worker) const;          // throws CheckError if it is none
  bool operator==(const Quorum&) const = default;
};

// States are compared by this: the larger is the newer.
struct Newness {
  QuorumNumber last_quorum;
  std::int64_t outer_steps = 0;

  auto operator<=>(const Newness&) const = default;
};
Newness newness_of(const Heartbeat& beat);

// Counts the quorums of a lighthouse that was started at `epoch`, a time in microseconds. Its clock
// may be behind that of an earlier lighthouse. So it goes on after the latest epoch that it hears
// of; and what it has counted itself is newer than all else, for it is the last lighthouse.
class QuorumCounter {
 public:
  explicit QuorumCounter(std::uint64_t epoch) : last_{epoch, 0}, own_epochs_{epoch} {}
  // No clock is a year ahead. What a stranger makes up must not be counted on from: it would be in
  // all checkpoints, and further ahead with each lighthouse, until no number is left.
  bool is_believable(const QuorumNumber& reported) const;
  void hear(const QuorumNumber& reported);  // a believable one
  QuorumNumber next();
  // For comparisons: in the order in which quorums were formed, as far as this lighthouse knows.
  QuorumNumber in_order(const QuorumNumber& reported) const;

 private:
  QuorumNumber last_;
  std::set<std::uint64_t> own_epochs_;
};

// What the lighthouse knows of a worker that it has made a member of quorum `last`, but whose
// heartbeat does not say yet that this round is over for it: it does not ask any more, and it has,
// or is about to adopt, the state that was agreed on; and if the round `is_committed`, one more
// outer step.
Heartbeat as_known(Heartbeat beat, const Quorum& last, bool is_committed);

// The quorum of these workers, with epoch and id 0, and with run 0 if it founds one; or nothing yet.
// One status per worker.
// `watching_s`: since the lighthouse has seen its first heartbeat, or the first after all were
// lost.
std::optional<Quorum> decide_quorum(const std::vector<WorkerStatus>& workers,
                                    const QuorumRules& rules, double watching_s = 1e9);

// Why decide_quorum() forms none, and who does what: a sentence that changes with these only, not
// with time. Empty if it forms one.
std::string why_no_quorum(const std::vector<WorkerStatus>& workers, const QuorumRules& rules,
                          double watching_s = 1e9);

}  // namespace ladder
