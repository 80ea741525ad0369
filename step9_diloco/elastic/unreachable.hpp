// Who is left out of quorums although its heartbeats arrive: a worker that others do not hear.
//
// A worker behind a firewall may reach the lighthouse but not the others, or only some of them.
// Every round with it fails. So whoever has waited in vain for the values of the same worker in
// kMaxMissedRounds rounds in a row says so in its heartbeats. Who of the two is to blame, nobody
// can know, but they must not be in a quorum together. So one of each such pair is left out: the
// worker with the most pairs first, and of a tie the one with the highest number. For example, a
// worker that nobody hears has a pair with everybody, and each of these only one.
//
// Nobody is left out for the sake of a worker that is behind it: what it has committed would be
// lost.
//
// A pair ends when one of the two is gone, or hung. A process that starts again has a new epoch, and so
// another chance.
//
// Pure; nothing here communicates.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "step9_diloco/elastic/quorum.hpp"

namespace ladder {

inline constexpr int kMaxMissedRounds = 3;

// What one worker has waited for in vain.
class MissedRounds {
 public:
  // After a round of this quorum: the values of these workers have not arrived.
  void note(const Quorum& quorum, const std::vector<int>& missing);
  // The epochs of those that were missing in kMaxMissedRounds rounds in a row, or more.
  std::vector<std::uint64_t> epochs() const;

 private:
  std::map<std::uint64_t, int> rounds_;  // in a row, by epoch
};

// The workers to leave out, of those that are neither lost nor hung. One status per worker.
std::set<int> unreachable_workers(std::vector<WorkerStatus> workers, const QuorumRules& rules);

}  // namespace ladder
