// Commit or abort: one atomic decision for each round, which all members obey.
//
// If a worker took the outer step and another did not, they would train different models. So each
// contributor that holds the whole average votes; once all have voted, whoever notices it commits.
// A worker that sees an error, or runs out of time, aborts. Both write to the same key, and only
// the first to do so succeeds:
//
//            commit     all contributors have voted: each holds the average
//   open  <
//            abort      somebody saw an error, or had no time left
//
// - The lighthouse creates the key as `open` before it publishes the quorum. Nobody else creates it:
//   a compare_set on a missing key with the expected value `open` changes nothing.
// - The same compare_set answers `open`, as if it were still there. So an answer `open` to one who
//   has just tried to replace it means that the round is gone: the lighthouse was restarted, or all
//   have forgotten the round. Such a worker must not decide alone: it takes no outer step, and the
//   next quorum heals it if the others have taken one.
// - A worker that is asked to stop aborts at once, and whoever still waits for its values notices.
// - A decided key stays until all members have said that they know the decision, so that a worker
//   that was frozen for a while still learns it.
//
// A contributor that dies after its vote does no harm: the others hold the average.
#pragma once

#include <functional>

#include "step9_diloco/elastic/quorum.hpp"
#include "step9_diloco/elastic/store.hpp"

namespace ladder {

enum class Decision {
  kCommit,
  kAbort,
  kUnknown,  // the round is gone, or the lighthouse is: as for an abort, no outer step
};

// For the lighthouse alone. Creates the key of the quorum's round, as `open`.
void create_decision(c10d::TCPStore& store, const Seal& seal, const Quorum& quorum);
// For the lighthouse alone. Aborts the round if it is open. True if it is committed.
bool end_decision(c10d::TCPStore& store, const Seal& seal, const Quorum& quorum);

// Polls the round once: by a worker that has the average (`is_ready`, it then also votes), or that
// wants to `abort`. Nothing while the round is open. Throws StoreError.
struct Vote {
  bool is_ready = false;
  bool wants_abort = false;
};
std::optional<Decision> poll(Store& store, const Quorum& quorum, int worker, const Vote& vote);

// Looks only: it is aborted, or gone. Whoever waits for values in it waits in vain.
bool is_aborted(Store& store, const Quorum& quorum);

// Polls until the round is decided. After `seconds`, or once should_stop(), a contributor wants to
// abort; one that heals has no say, and gives up. kUnknown as well if the lighthouse cannot be
// reached, also not in a whole attempt that begins a second after that or later. Never throws
// StoreError.
Decision await_decision(
    Store& store, const Quorum& quorum, int worker, bool is_ready, double seconds,
    const std::function<bool()>& should_stop = [] { return false; });

}  // namespace ladder
