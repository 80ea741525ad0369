// What a healthy worker gives to one that heals: an immutable copy of all that training needs.
//
// The donor takes and sends it in the moment in which it learns of the quorum, and trains on while
// the copy travels. So the state is never torn, half of it older than an inner step and half newer.
// Both sides look at the progress only: if nothing has arrived for a while, because the donor is
// dead or a piece was lost, whoever heals turns to another donor; if nothing has left for a while,
// the donor drops the rest (messenger.hpp).
//
//   | counters, 8 bytes each | bytes of the tensors, one after the other |
//
// Both sides have the same model and options (Membership refuses others), so no names are sent.
//
// Whoever heals does not take the donor's word for it: the quorum says how many outer steps the
// donor has taken, and the hash of its shared tensors, which most healthy members have.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/core/unit.hpp"
#include "step9_diloco/elastic/log.hpp"
#include "step9_diloco/elastic/message.hpp"
#include "step9_diloco/elastic/quorum.hpp"

namespace ladder {

// All that a worker's training needs, in place: what another worker may receive in order to go on
// as this one would. All tensors are contiguous and on the CPU.
struct WorkerState {
  // Equal on all healthy workers: global parameters, outer momentum.
  std::vector<NamedTensor> shared;
  std::vector<NamedTensor> own;  // the worker's parameters, the state of its inner optimizer
  std::function<std::int64_t()> outer_steps;            // committed ones
  std::function<std::vector<std::int64_t>()> counters;  // always as many; the first: outer steps
  std::function<void(const std::vector<std::int64_t>&)> set_counters;  // 0 to kMostCount
};

std::string shared_hash(const WorkerState& state);  // of names, shapes and bytes of `shared`
std::int64_t snapshot_bytes(const WorkerState& state);
std::string take_snapshot(const WorkerState& state);

// Why a worker with this state must not adopt the donor's snapshot: a wrong length, another
// state than the quorum says, or counters that no run has. Empty if it may.
std::string fault_of(const std::string& snapshot, const Member& donor, const WorkerState& state);

// Overwrites the state by that of a snapshot without fault.
void adopt_snapshot(const std::string& snapshot, const WorkerState& state);

// Receives the state of its donor and adopts it. False, and nothing is
// changed, if nothing arrives for `seconds`, or a snapshot with a fault does. `goes_on` is called
// at every piece, and all the time while there is none; if it says no, that is the end, too.
bool heal(const Quorum& quorum, int worker, const WorkerState& state, Mailbox& mailbox,
          double seconds, const std::function<bool()>& goes_on, const Log& log);

}  // namespace ladder
