// What workers and lighthouse write into the store for one another, as text.
//
// Keys, of which there are a few for each worker and for each quorum in progress, whatever the size
// of the model (i: the lighthouse's epoch, q: quorum, k: worker):
//
//   lighthouse               what it says of itself; each start of it has another epoch
//   fingerprint/i            of model and options: the first worker's; others must have the same
//   beat/k                   the worker's heartbeat
//   assignment/k             the last quorum that the worker is a member of
//   decision/i/q/round       open, then commit or abort: see decision.hpp
//   vote/i/q/k  seen/i/q/k   the worker has the average; it knows the decision
//
// Nothing read from the store is trusted. A value without the right seal (seal.hpp) does not count;
// a text that is no record is a CheckError, or ignored. A heartbeat that somebody puts back is
// ignored: it is of another epoch of the lighthouse, of one of the worker that is over, or has a
// lower number. An assignment that is put back has another request. A decision that is put back may
// make a worker miss an outer step; then the next quorum heals it.
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
  std::uint64_t lighthouse_epoch = 0;
  std::int64_t number = 0;  // of heartbeats in this epoch: each differs from the last
  bool is_leaving = false;  // it takes part no more

  bool operator==(const BeatRecord& other) const = default;
};

// What the lighthouse says of itself.
struct LighthouseRecord {
  std::uint64_t epoch = 0;
  bool is_public = false;  // it listens to other machines

  bool operator==(const LighthouseRecord& other) const = default;
};

std::string to_text(const LighthouseRecord& record);
std::string to_text(const BeatRecord& record);
std::string to_text(const Quorum& quorum);
// All throw CheckError.
LighthouseRecord parse_lighthouse(const std::string& text);
BeatRecord parse_beat(const std::string& text);
Quorum parse_quorum(const std::string& text);

inline const char* const kLighthouseKey = "lighthouse";
std::string fingerprint_key(std::uint64_t lighthouse_epoch);
std::string beat_key(int worker);
std::string assignment_key(int worker);
std::string decision_key(const Quorum& quorum);
std::string vote_key(const Quorum& quorum, int worker);
std::string seen_key(const Quorum& quorum, int worker);

}  // namespace ladder
