#include "step9_diloco/elastic/quorum.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "common/core/check.hpp"

namespace ladder {
namespace {

// The hash of one of the newest states: the one that most workers with as many outer steps have; of
// a tie, what the one with the lowest worker has.
std::string majority_hash(const std::vector<WorkerStatus>& asking, const Newness& newest) {
  std::map<std::string, int> votes;
  for (const WorkerStatus& seen : asking)
    if (seen.beat.outer_steps == newest.outer_steps) ++votes[seen.beat.state_hash];
  const Heartbeat* wanted = nullptr;
  for (const WorkerStatus& seen : asking) {
    const Heartbeat& beat = seen.beat;
    if (newness_of(beat) != newest) continue;
    if (wanted == nullptr || votes[beat.state_hash] > votes[wanted->state_hash]) wanted = &beat;
  }
  return wanted->state_hash;
}

// Names those that heal, and whom each heals from.
void assign_donors(Quorum& quorum, const std::string& hash) {
  const auto is_healthy = [&](const Member& member) {
    return member.outer_steps == quorum.outer_steps && member.state_hash == hash;
  };
  std::vector<int> donors;
  for (const Member& member : quorum.members)
    if (is_healthy(member)) donors.push_back(member.worker);
  std::size_t num_healing = 0;
  for (Member& member : quorum.members) {
    if (is_healthy(member)) continue;
    // One for each donor, as far as they go. Another request of the same worker may mean that its
    // last donor has failed: it gets the next one.
    const std::size_t turn = num_healing++ + static_cast<std::size_t>(member.request);
    member.donor = donors[turn % donors.size()];
  }
}

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

Member member_of(const Heartbeat& beat) {
  return {.worker = beat.worker,
          .epoch = beat.epoch,
          .request = beat.request,
          .outer_steps = beat.outer_steps,
          .state_hash = beat.state_hash,
          .weight = beat.weight,
          .address = beat.address,
          .has_finished = beat.has_finished};
}

}  // namespace

std::vector<Member> Quorum::contributors() const {
  std::vector<Member> list;
  std::ranges::copy_if(members, std::back_inserter(list), [](const Member& member) {
    return !member.donor.has_value() && !member.has_finished;
  });
  return list;
}

std::vector<Member> Quorum::receivers(int donor) const {
  std::vector<Member> list;
  std::ranges::copy_if(members, std::back_inserter(list),
                       [donor](const Member& member) { return member.donor == donor; });
  return list;
}

const Member& Quorum::member(int worker) const {
  const auto found = std::ranges::find(members, worker, &Member::worker);
  check(found != members.end(), "worker ", worker, " is no member of quorum ", id);
  return *found;
}

bool is_lost(const WorkerStatus& seen, const QuorumRules& rules) {
  return seen.beat_age_s > rules.stale_s;
}

bool is_hung(const WorkerStatus& seen, const QuorumRules& rules) {
  return seen.beat.phase != Phase::kAsking && seen.progress_age_s > rules.join_timeout_s;
}

Newness newness_of(const Heartbeat& beat) {
  return {beat.last_quorum, beat.outer_steps};
}

void QuorumCounter::hear(const QuorumNumber& reported) {
  if (reported <= last_) return;
  // Another one that is behind as well and hears of the same epoch will choose another epoch.
  const std::uint64_t own_bits = *own_epochs_.begin() % 4096;
  last_.lighthouse_epoch = reported.lighthouse_epoch + 1 + own_bits;
  own_epochs_.insert(last_.lighthouse_epoch);
}

QuorumNumber QuorumCounter::next() {
  ++last_.id;
  return last_;
}

QuorumNumber QuorumCounter::in_order(const QuorumNumber& reported) const {
  const bool is_own = own_epochs_.contains(reported.lighthouse_epoch);
  return {is_own ? std::numeric_limits<std::uint64_t>::max() : reported.lighthouse_epoch,
          reported.id};
}

Heartbeat as_known(Heartbeat beat, const Quorum& last, bool is_committed) {
  const Member& self = last.member(beat.worker);
  const bool is_in_it = beat.epoch == self.epoch && beat.request == self.request;
  if (!is_in_it || beat.last_ended == beat.request) return beat;  // it has said all
  if (beat.phase == Phase::kAsking) beat.phase = self.donor ? Phase::kHealing : Phase::kTraining;
  beat.last_quorum = last.number();
  beat.outer_steps = last.outer_steps + (is_committed ? 1 : 0);
  return beat;
}

std::optional<Quorum> decide_quorum(std::vector<WorkerStatus> workers, const QuorumRules& rules,
                                    double watching_s) {
  std::erase_if(workers, [&](const WorkerStatus& seen) { return is_lost(seen, rules); });
  std::ranges::sort(workers, {}, [](const WorkerStatus& seen) { return seen.beat.worker; });
  std::vector<WorkerStatus> asking;
  std::size_t num_training = 0, num_healing = 0;
  Newness newest, newest_busy;  // of those that ask; of those that train or heal
  double longest_wait_s = 0;
  for (const WorkerStatus& seen : workers) {
    if (seen.beat.phase == Phase::kAsking) {
      asking.push_back(seen);
      newest = std::max(newest, newness_of(seen.beat));
      longest_wait_s = std::max(longest_wait_s, seen.asking_s);
    } else if (!is_hung(seen, rules)) {
      ++(seen.beat.phase == Phase::kTraining ? num_training : num_healing);
      newest_busy = std::max(newest_busy, newness_of(seen.beat));
    }
  }
  const auto count = [](int number) { return static_cast<std::size_t>(number); };
  const bool is_enough = !asking.empty() && asking.size() >= count(rules.min_workers);
  const bool is_majority = asking.size() > num_training;
  const bool has_waited = longest_wait_s >= rules.join_timeout_s;
  const bool is_complete = num_training + num_healing == 0;
  const bool knows_all = workers.size() >= count(rules.num_workers) || watching_s >= rules.stale_s;
  if (!knows_all || !is_enough || !is_majority || (!is_complete && !has_waited)) return {};
  if (newest < newest_busy) return {};  // however long they have waited
  Quorum quorum = {.outer_steps = newest.outer_steps};
  for (const WorkerStatus& seen : asking) quorum.members.push_back(member_of(seen.beat));
  assign_donors(quorum, majority_hash(asking, newest));
  return quorum;
}

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
