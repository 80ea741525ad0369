#include "step9_diloco/elastic/quorum.hpp"

#include <algorithm>
#include <map>

#include "common/core/check.hpp"

namespace ladder {
namespace {

// Names those that heal, and whom each heals from.
void assign_donors(Quorum& quorum) {
  for (const Member& member : quorum.members)
    quorum.outer_steps = std::max(quorum.outer_steps, member.outer_steps);
  std::map<std::string, int>
      votes;  // of those at the highest outer step, by the hash of their state
  for (const Member& member : quorum.members)
    if (member.outer_steps == quorum.outer_steps) ++votes[member.state_hash];
  const Member* wanted = nullptr;  // of a tie, the one with the lowest worker
  for (const Member& member : quorum.members) {
    if (member.outer_steps != quorum.outer_steps) continue;
    if (wanted == nullptr || votes[member.state_hash] > votes[wanted->state_hash]) wanted = &member;
  }
  const auto is_healthy = [&](const Member& member) {
    return member.outer_steps == quorum.outer_steps && member.state_hash == wanted->state_hash;
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

std::optional<Quorum> decide_quorum(std::vector<Sighting> sightings, const QuorumRules& rules,
                                    double watching_s) {
  std::ranges::sort(sightings, {}, [](const Sighting& seen) { return seen.beat.worker; });
  Quorum quorum;
  int num_fresh = 0;
  std::size_t num_training = 0, num_healing = 0;
  double longest_wait_s = 0;
  for (const Sighting& seen : sightings) {
    const Heartbeat& beat = seen.beat;
    if (seen.beat_age_s > rules.stale_s) continue;  // lost
    ++num_fresh;
    if (beat.phase == Phase::kAsking) {
      quorum.members.push_back({.worker = beat.worker,
                                .epoch = beat.epoch,
                                .request = beat.request,
                                .outer_steps = beat.outer_steps,
                                .state_hash = beat.state_hash,
                                .weight = beat.weight,
                                .address = beat.address,
                                .has_finished = beat.has_finished});
      longest_wait_s = std::max(longest_wait_s, seen.asking_s);
    } else if (beat.phase == Phase::kTraining && seen.progress_age_s <= rules.join_timeout_s) {
      ++num_training;
    } else if (beat.phase == Phase::kHealing && seen.progress_age_s <= rules.join_timeout_s) {
      ++num_healing;
    }
  }
  const std::size_t num_asking = quorum.members.size();
  const bool is_enough = num_asking >= static_cast<std::size_t>(rules.min_workers);
  const bool is_majority = num_asking > num_training;
  const bool has_waited = longest_wait_s >= rules.join_timeout_s;
  const bool is_complete = num_training + num_healing == 0;
  const bool knows_all = num_fresh >= rules.num_workers || watching_s >= rules.stale_s;
  if (!knows_all || num_asking == 0 || !is_enough || !is_majority || (!is_complete && !has_waited))
    return {};
  assign_donors(quorum);
  return quorum;
}

}  // namespace ladder
