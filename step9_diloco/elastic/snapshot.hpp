// What a healthy worker gives to one that heals: an immutable copy of all that training needs.
//
// The donor takes it in the moment in which it learns of the quorum, and trains on while a thread
// serves the copy (snapshot_transfer.hpp). So the state is never torn, half of it older than an
// inner step and half newer.
//
//   | counters, 8 bytes each | bytes of the tensors, one after the other | hash of all before: 32 |
//
// Both sides have the same model and options (Membership refuses others), so no names are sent.
//
// Whoever heals does not take the donor's word for it: the quorum says how many outer steps the
// donor has taken, and the hash of its shared tensors, which most healthy members have.
#pragma once

#include <cstdint>
#include <string>

#include "step9_diloco/elastic/mailbox.hpp"
#include "step9_diloco/elastic/quorum.hpp"
#include "step9_diloco/elastic/worker_state.hpp"

namespace ladder {

std::string shared_hash(const WorkerState& state);  // of names, shapes and bytes of `shared`
std::int64_t snapshot_bytes(const WorkerState& state);
InFlightBuffer take_snapshot(const WorkerState& state);

// Why a worker with this state must not adopt the donor's snapshot: a wrong length or hash, another
// state than the quorum says, or counters that no run has. Empty if it may.
std::string fault_of(const InFlightBuffer& snapshot, const Member& donor, const WorkerState& state);

// Overwrites the state by that of a snapshot without fault.
void adopt_snapshot(const InFlightBuffer& snapshot, const WorkerState& state);

}  // namespace ladder
