#include "step9_diloco/elastic/unreachable.hpp"

#include <algorithm>
#include <utility>

namespace ladder {
namespace {

bool misses(const Heartbeat& one, const Heartbeat& other) {
  return std::ranges::find(one.missed, other.epoch) != one.missed.end();
}

// With those that are not behind it.
std::int64_t count_pairs(const Heartbeat& one, const std::vector<WorkerStatus>& workers) {
  return std::ranges::count_if(workers, [&](const WorkerStatus& seen) {
    const Heartbeat& other = seen.beat;
    return newness_of(other) >= newness_of(one) && (misses(one, other) || misses(other, one));
  });
}

}  // namespace

void MissedRounds::note(const Quorum& quorum, const std::vector<int>& missing) {
  for (const Member& member : quorum.contributors()) {
    if (std::ranges::find(missing, member.worker) == missing.end()) {
      rounds_.erase(member.epoch);
    } else {
      ++rounds_[member.epoch];
    }
  }
}

std::vector<std::uint64_t> MissedRounds::epochs() const {
  std::vector<std::uint64_t> epochs;
  for (const auto& [epoch, num_rounds] : rounds_)
    if (num_rounds >= kMaxMissedRounds) epochs.push_back(epoch);
  return epochs;
}

std::set<int> unreachable_workers(std::vector<WorkerStatus> workers, const QuorumRules& rules) {
  std::erase_if(workers, [&](const WorkerStatus& seen) {
    return is_lost(seen, rules) || is_hung(seen, rules);
  });
  std::set<int> unreachable;
  while (true) {
    std::pair<std::int64_t, int> worst = {0, -1};  // pairs, worker
    for (const WorkerStatus& seen : workers)
      worst = std::max(worst, {count_pairs(seen.beat, workers), seen.beat.worker});
    if (worst.first == 0) return unreachable;
    unreachable.insert(worst.second);
    std::erase_if(workers,
                  [&](const WorkerStatus& seen) { return seen.beat.worker == worst.second; });
  }
}

}  // namespace ladder
