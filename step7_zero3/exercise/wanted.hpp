// For the grader: what a sharded GPT must gather and hold at each turn.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "common/comm/traffic_theory.hpp"
#include "common/optim/flat_layout.hpp"
#include "step6_zero2/sharder_cost.hpp"
#include "step7_zero3/peak.hpp"

namespace ladder::step7 {

enum class Phase { kForward, kBackward };
inline const char* to_string(Phase phase) {
  return phase == Phase::kForward ? "forward" : "backward";
}

// What the units' order, the prefetch and the kept units make of one microbatch. Units are gathered
// in the order in which they are computed with, whatever the prefetch is: forward from 0 to last,
// backward from last - 1 to 1.
struct Wanted {
  const FlatLayout& layout;
  bool is_tied;
  std::int64_t prefetch;
  std::int64_t last = static_cast<std::int64_t>(layout.units.size()) - 1;

  std::string names(const std::vector<std::int64_t>& units) const {
    std::string text = "(";
    for (const std::int64_t unit : units) text += " " + (unit < 0 ? "what-is-no-unit" : name(unit));
    return text + " )";
  }
  const std::string& name(std::int64_t unit) const {
    return layout.units[static_cast<std::size_t>(unit)].name;
  }
  std::int64_t bytes(std::int64_t unit) const {
    return 4 * layout.units[static_cast<std::size_t>(unit)].numel;
  }

  std::vector<std::int64_t> gathered_units(bool has_backward) const {
    std::vector<std::int64_t> units;
    for (std::int64_t u = 0; u <= last; ++u) units.push_back(u);
    for (std::int64_t u = last - 1; has_backward && u >= 1; --u) units.push_back(u);
    return units;
  }
  // By a backward that finds nothing whole.
  std::vector<std::int64_t> units_read_in_backward() const {
    std::vector<std::int64_t> units;
    for (std::int64_t u = is_tied ? 0 : 1; u <= last; ++u) units.push_back(u);
    return units;
  }
  // When a unit's turn has come.
  std::int64_t num_arrived(Phase phase, std::int64_t unit) const {
    return phase == Phase::kForward ? unit + 1 : last + 1 + (last - unit);
  }
  std::int64_t num_started(Phase phase, std::int64_t unit) const {
    if (phase == Phase::kForward) return std::min(unit + prefetch, last) + 1;
    return last + 1 + (last - std::max<std::int64_t>(unit - prefetch, 1));
  }
  // Of the units that are whole by then.
  std::int64_t whole_bytes(Phase phase, std::int64_t unit) const {
    const bool is_forward = phase == Phase::kForward;
    const std::int64_t first = is_forward ? unit : std::max<std::int64_t>(unit - prefetch, 1);
    const std::int64_t end = is_forward ? std::min(unit + prefetch, last) : unit;
    const bool is_tied_one_kept = is_forward ? unit > 0 : unit == last;
    std::int64_t whole = is_tied && is_tied_one_kept ? bytes(0) : 0;
    for (std::int64_t u = first; u <= end; ++u) whole += bytes(u);
    return whole;
  }
  std::int64_t bytes_after_forward() const { return bytes(last) + (is_tied ? bytes(0) : 0); }
  std::int64_t peak_bytes() const {
    return 4 * peak_whole_numel(layout, static_cast<int>(prefetch), is_tied);
  }

  Traffic microbatch_traffic(int world_size, int rank) const {
    Traffic traffic = sharder_traffic(layout, world_size, rank);
    for (const std::int64_t unit : gathered_units(/*has_backward=*/true))
      traffic += all_gather_traffic(bytes(unit) / 4, 4, world_size, rank);
    return traffic;
  }
};

// Whose turn it is when a unit's parameters are read, in one forward or backward. The tied weight
// lies in the embedding's unit; but for the embedding's own forward, it is the head that reads it.
class Turns {
 public:
  Turns(const Wanted& wanted, Phase phase)
      : wanted_(wanted), has_left_embedding_(phase == Phase::kBackward) {}
  std::int64_t of_read(std::int64_t unit) {
    if (unit > 0) has_left_embedding_ = true;
    return wanted_.is_tied && unit == 0 && has_left_embedding_ ? wanted_.last : unit;
  }

 private:
  const Wanted& wanted_;
  bool has_left_embedding_;
};

}  // namespace ladder::step7
