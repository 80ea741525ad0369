// What a worker says of itself, every so often: from this the lighthouse decides who takes part.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ladder {

// What a worker does, as it says itself.
enum class Phase { kTraining, kAsking, kHealing };

// What a worker says of itself. A process that starts again begins another epoch of the same
// worker, with a higher number as far as clocks agree.
struct Heartbeat {
  int worker = 0;
  std::uint64_t epoch = 0;
  Phase phase = Phase::kTraining;
  std::int64_t request = 0;      // quorums asked for in this epoch, this one included
  bool has_finished = false;     // its training: it only helps others to heal
  std::int64_t progress = 0;     // grows with every inner step
  std::int64_t last_quorum = 0;  // in this epoch, in which it was healthy, or has healed
  std::int64_t outer_steps = 0;  // committed ones, as far as it knows
  std::string state_hash = {};   // of the global copy and the outer momentum, at its last request
  double weight = 1;             // in the average
  std::string address = {};      // where it receives data
  std::vector<std::uint64_t> missed = {};  // epochs of workers that it does not hear: unheard.hpp

  bool operator==(const Heartbeat&) const = default;
};

}  // namespace ladder
