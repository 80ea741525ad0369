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
#include <functional>
#include <string>
#include <vector>

#include "common/core/unit.hpp"
#include "step9_diloco/elastic/mailbox.hpp"
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
  std::function<void(const std::vector<std::int64_t>&)> set_counters;  // from 0 to 2^40
};

std::string shared_hash(const WorkerState& state);  // of names, shapes and bytes of `shared`
std::int64_t snapshot_bytes(const WorkerState& state);
InFlightBuffer take_snapshot(const WorkerState& state);

// Why a worker with this state must not adopt the donor's snapshot: a wrong length or hash, another
// state than the quorum says, or counters that no run has. Empty if it may.
std::string fault_of(const InFlightBuffer& snapshot, const Member& donor, const WorkerState& state);

// Overwrites the state by that of a snapshot without fault.
void adopt_snapshot(const InFlightBuffer& snapshot, const WorkerState& state);

}  // namespace ladder
