// What a worker and the lighthouse say to each other: reports, and the answers to them, as JSON.
//
//   worker 0                            lighthouse
//   7: trains, step 120             ->
//                                   <-  7: nothing new
//   8: asks for a quorum            ->
//                                   <-  8: nothing yet
//   9: asks for a quorum            ->
//                                   <-  9: quorum 3, of workers 0, 1 and 2
//   10: votes for quorum 3's step   ->
//                                   <-  10: open, for worker 2 has not voted yet
//   11: votes for quorum 3's step   ->
//                                   <-  11: commit
//
// A report says all that the lighthouse has to know of the worker, and the worker sends one after
// the other. So it does no harm if a report or an answer is lost, comes late or comes twice: the
// next report says it again, one with a lower number than the last does not count, and an answer
// has the number of its report.
//
// Nothing that is read is trusted: a text that is no report or answer is a CheckError.
#pragma once

#include <optional>
#include <string>

#include "step9_diloco/elastic/quorum.hpp"

namespace ladder {

// On the outer step of a round: for it, by a contributor that holds the whole average.
enum class Vote { kNone, kFor, kAgainst };

// What becomes of a round. The lighthouse alone decides, and never changes its mind.
enum class Decision {
  kOpen,
  kCommit,   // all contributors have voted for it: each holds the average
  kAbort,    // one has voted against it, or the next quorum was formed before all had voted
  kUnknown,  // the lighthouse knows no such round, or cannot be asked: as for kAbort, no outer step
};

// `rules` and `fingerprint`, of model and options, are the same for all workers.
struct Report {
  Heartbeat beat;
  std::int64_t number = 0;  // of reports of this process: grows
  QuorumRules rules = {};
  std::string fingerprint = {};
  QuorumNumber round = {};  // that the worker is in; none: {}
  Vote vote = Vote::kNone;  // in that round
  bool is_leaving = false;  // it takes part no more

  bool operator==(const Report& other) const = default;
};

struct Answer {
  std::int64_t number = 0;  // of the report
  std::uint64_t lighthouse_epoch = 0;
  std::string refusal = {};             // why the group refuses this worker; empty: it does not
  std::optional<Quorum> quorum = {};    // if the worker asks, and there is one
  Decision decision = Decision::kOpen;  // of the report's round

  bool operator==(const Answer& other) const = default;
};

inline constexpr std::int64_t kMaxReportBytes = 1 << 20;  // a thousand members fit

std::string to_text(const Report& report);
std::string to_text(const Answer& answer);
// Both throw CheckError.
Report parse_report(const std::string& text);
Answer parse_answer(const std::string& text);

}  // namespace ladder
