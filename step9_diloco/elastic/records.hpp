// What workers and lighthouse write into the store for one another, as text.
//
// Keys, of which there are a few for each worker and for each quorum in progress, whatever the size
// of the model (i: the lighthouse's epoch, q: quorum, k: worker):
//
//   lighthouse_epoch         a random number that each start of the lighthouse draws
//   fingerprint              of model and options: the first worker's; others must have the same
//   beat/k                   the worker's heartbeat
//   assignment/k             the last quorum that the worker is a member of
//   decision/i/q/round       open, then commit or abort: see decision.hpp
//   vote/i/q/k  seen/i/q/k   the worker has the average; it knows the decision
//
// Nothing read from the store is trusted: a text that is no record is a CheckError, or ignored.
#pragma once

#include <string>

#include "step9_diloco/elastic/quorum.hpp"

namespace ladder {

// A heartbeat, with what the lighthouse has to know of the worker's options. `rules.stale_s` is how
// long the worker may take between two heartbeats; `fingerprint` is that of its model and options.
struct BeatRecord {
  Heartbeat beat;
  QuorumRules rules;
  std::string fingerprint;
  std::int64_t number = 0;  // of heartbeats in this epoch: each differs from the last
  bool is_leaving = false;  // it takes part no more

  bool operator==(const BeatRecord& other) const = default;
};

std::string to_text(const BeatRecord& record);
std::string to_text(const Quorum& quorum);
BeatRecord parse_beat(const std::string& text);  // throws CheckError
Quorum parse_quorum(const std::string& text);    // throws CheckError

std::string beat_key(int worker);
std::string assignment_key(int worker);
std::string decision_key(const Quorum& quorum);
std::string vote_key(const Quorum& quorum, int worker);
std::string seen_key(const Quorum& quorum, int worker);

}  // namespace ladder
