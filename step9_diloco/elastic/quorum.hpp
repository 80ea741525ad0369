// Who takes part in a round: decided by the lighthouse alone, from the workers' heartbeats.
//
// A worker that reaches the end of its round asks for a quorum and waits. The quorum is formed once
// nobody is worth waiting for any more:
//
//   lost       no heartbeat for a while: killed, or its machine is gone
//   hung       heartbeats arrive (a thread sends them), but no inner step for the join time-out
//   training   worth waiting for, until the first that asked has waited for the join time-out
//   healing    likewise: without it, it would be behind again as soon as it is healed
//   ahead      training or healing, and its state is newer than that of all who ask: waited for
//              until it asks too, is hung or is lost
//
// A quorum is never formed by half or fewer of the workers that train or ask: while one worker is
// slow, a fast one must not go off alone.
//
// The newer of two states has more outer steps; of two with as many, the one whose worker was
// healthy, or has healed, in the later quorum. Of the newest states, the one whose hash most
// members at this outer step share is agreed on. Members that have it are healthy: they contribute
// to the average and decide on it. All others heal: each receives the state of a healthy one, and
// then hears the round's average.
//
// Invariant: no worker that is neither lost nor hung has a newer state than a quorum's healthy
// members. So an outer step that is committed is never undone while one worker that knows of it is
// there: those that come back from other checkpoints wait for it, and heal from it.
//
// Not promised: an outer step that is known only to workers that are lost, are hung or have left.
// The others cannot tell whether these will ever come back: they go on from the newest state that
// they have, and whoever comes back later heals to that. A process that starts again has been in no
// quorum.
//
// A lighthouse that has just started knows nobody. Workers that are all there may be about to say
// so, and one of them may have taken an outer step that the others have missed. So at first it
// waits for all workers that there can be, though not longer than heartbeats take to become stale.
// So it does when somebody comes back after all were lost.
//
// A worker that has finished its training asks as well, for a while: others may be behind, and heal
// from it. It contributes nothing.
//
// Pure functions; nothing here communicates.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "step9_diloco/elastic/heartbeat.hpp"

namespace ladder {

// A heartbeat, and what the lighthouse's clock says about it.
struct Sighting {
  Heartbeat beat;
  double beat_age_s = 0;      // since a new heartbeat arrived
  double progress_age_s = 0;  // since its progress grew
  double asking_s = 0;        // since it asked, if it asks
};

struct QuorumRules {
  int num_workers = 0;        // that there can be
  int min_workers = 1;        // members, healing or finished ones included
  double stale_s = 1;         // a heartbeat older than this: lost
  double join_timeout_s = 1;  // how long to wait for one that trains; one without progress: hung

  bool operator==(const QuorumRules&) const = default;
};

struct Member {
  int worker = 0;
  std::uint64_t epoch = 0;
  std::int64_t request = 0;
  std::int64_t outer_steps = 0;
  std::string state_hash = {};
  double weight = 1;
  std::string address = {};
  bool has_finished = false;
  std::optional<int> donor = {};  // the worker that it heals from; nothing for a healthy one

  bool operator==(const Member&) const = default;
};

struct Quorum {
  std::uint64_t lighthouse_epoch = 0;
  std::int64_t id = 0;           // grows, also when the lighthouse is started again
  std::int64_t outer_steps = 0;  // of the healthy members: the round's number
  std::vector<Member> members;   // in the order of the workers

  std::vector<Member> contributors() const;        // healthy, and not finished
  std::vector<Member> receivers(int donor) const;  // that heal from this worker
  const Member& member(int worker) const;          // throws CheckError if it is none
  bool operator==(const Quorum&) const = default;
};

// The quorum of these workers, with epoch and id 0; or nothing yet. One sighting per worker.
// `watching_s`: since the lighthouse has seen its first heartbeat, or the first after all were
// lost.
std::optional<Quorum> decide_quorum(std::vector<Sighting> sightings, const QuorumRules& rules,
                                    double watching_s = 1e9);

}  // namespace ladder
