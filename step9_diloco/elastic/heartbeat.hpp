// What a worker says of itself, every so often: from this the lighthouse decides who takes part.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace ladder {

// Quorums in the order in which they were formed, also by one lighthouse after another.
struct QuorumNumber {
  std::uint64_t lighthouse_epoch = 0;
  std::int64_t id = 0;  // begins anew with each epoch

  auto operator<=>(const QuorumNumber&) const = default;
};

// What a worker does, as it says itself.
enum class Phase { kTraining, kAsking, kHealing };

// What a worker says of itself. A process that starts again begins another epoch of the same
// worker, with a higher number as far as clocks agree.
struct Heartbeat {
  int worker = 0;
  std::uint64_t epoch = 0;
  Phase phase = Phase::kTraining;
  std::int64_t request = 0;       // quorums asked for in this epoch, this one included
  std::int64_t last_ended = 0;    // the last of them whose round is over, as far as it goes
  bool has_finished = false;      // its training: it only helps others to heal
  std::int64_t progress = 0;      // grows with every inner step
  QuorumNumber last_quorum = {};  // in which its state was agreed on: that it has, or heals to
  std::int64_t outer_steps = 0;   // committed ones of that state, as far as it knows
  std::string state_hash = {};    // of the global copy and the outer momentum, at its last request
  double weight = 1;              // in the average
  std::string address = {};       // where it receives data
  std::vector<std::uint64_t> missed = {};  // epochs of workers that it does not hear: unheard.hpp

  bool operator==(const Heartbeat&) const = default;
};

}  // namespace ladder
