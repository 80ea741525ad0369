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
// has the number of its report. Only the settings are sent no more once the lighthouse has them.
//
// Nothing that is read is trusted: a text that is no report or answer is a CheckError, and so is a
// number or a length above its bound.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "common/core/check.hpp"
#include "step9_diloco/elastic/quorum.hpp"

namespace ladder {

inline constexpr std::int64_t kReportVersion = 3;

// A vote on the outer step of a round; kFor is that of a contributor that holds the whole average.
enum class Vote { kNone, kFor, kAgainst };

// What becomes of a round. The lighthouse alone decides, and never changes its mind.
enum class Decision {
  kOpen,
  kCommit,   // all contributors have voted for it: each holds the average
  kAbort,    // one has voted against it, or the next quorum was formed before all had voted
  kUnknown,  // the lighthouse knows no such round, or cannot be asked: as for kAbort, no outer step
};

// What must be the same for all workers of a group, by name: "--lr" is "0.001".
using GroupSettings = std::map<std::string, std::string>;

struct Report {
  std::int64_t version = kReportVersion;
  Heartbeat beat;
  std::int64_t number = 0;      // of reports of this process: grows
  int num_workers = 1;          // --workers
  GroupSettings settings = {};  // empty once the lighthouse knows them
  QuorumNumber round = {};      // that the worker is in; none: {}
  Vote vote = Vote::kNone;      // in that round
  bool is_leaving = false;      // it takes part no more

  bool operator==(const Report& other) const = default;
};

struct Answer {
  std::int64_t version = kReportVersion;
  std::int64_t number = 0;  // of the report
  std::uint64_t lighthouse_epoch = 0;
  double join_timeout_s = 1;            // the lighthouse's
  std::string refusal = {};             // why the group refuses this worker; empty: it does not
  std::string wait = {};                // why the report does not count yet; empty: it does
  bool wants_settings = false;          // it does not count without them
  std::optional<Quorum> quorum = {};    // if the worker asks, and there is one
  Decision decision = Decision::kOpen;  // of the report's round

  bool operator==(const Answer& other) const = default;
};

inline constexpr std::int64_t kMaxReportBytes = 1 << 20;  // a thousand members fit

std::string to_text(const Report& report);
std::string to_text(const Answer& answer);
// Both throw CheckError; the first OtherVersion for a report of another version.
Report parse_report(const std::string& text);
Answer parse_answer(const std::string& text);

class OtherVersion : public CheckError {
 public:
  OtherVersion(const std::string& message, std::int64_t number)
      : CheckError(message), number_(number) {}
  std::int64_t number() const { return number_; }  // of the report

 private:
  std::int64_t number_;
};

// The answer to a report of another version: a refusal in the form that answers had at first, and
// that parse_answer() of every version reads.
std::string refusal_of_version(const OtherVersion& report, std::uint64_t lighthouse_epoch);

}  // namespace ladder
