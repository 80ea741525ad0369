#include "step9_diloco/elastic/quorum.hpp"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <random>
#include <utility>

#include "common/core/check.hpp"

namespace ladder {
namespace {

constexpr std::uint64_t kYear = 365ULL * 24 * 3600 * 1'000'000;  // microseconds

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

Member member_of(const Heartbeat& beat) {
  return {.worker = beat.worker,
          .process = beat.process,
          .request = beat.request,
          .outer_steps = beat.outer_steps,
          .state_hash = beat.state_hash,
          .address = beat.address,
          .has_finished = beat.has_finished};
}

// Who does what.
struct Standing {
  std::vector<WorkerStatus> asking;  // in the order of the workers
  std::vector<int> training, healing, hung, lost;
  Newness newest, newest_busy;  // of those that ask; of those that train or heal
  int newest_busy_worker = -1;
  double longest_wait_s = 0;
  bool has_run = false;  // one that asks has the newest state, and it belongs to the run
};

Standing standing_of(std::vector<WorkerStatus> workers, const QuorumRules& rules) {
  std::ranges::sort(workers, {}, [](const WorkerStatus& seen) { return seen.beat.worker; });
  Standing standing;
  for (const WorkerStatus& seen : workers) {
    const Heartbeat& beat = seen.beat;
    if (is_lost(seen, rules)) {
      standing.lost.push_back(beat.worker);
    } else if (beat.phase == Phase::kAsking) {
      standing.asking.push_back(seen);
      standing.newest = std::max(standing.newest, newness_of(beat));
      standing.longest_wait_s = std::max(standing.longest_wait_s, seen.asking_s);
    } else if (is_hung(seen, rules)) {
      standing.hung.push_back(beat.worker);
    } else {
      (beat.phase == Phase::kTraining ? standing.training : standing.healing)
          .push_back(beat.worker);
      if (standing.newest_busy_worker >= 0 && newness_of(beat) <= standing.newest_busy) continue;
      standing.newest_busy = newness_of(beat);
      standing.newest_busy_worker = beat.worker;
    }
  }
  standing.has_run = std::ranges::any_of(standing.asking, [&](const WorkerStatus& seen) {
    return newness_of(seen.beat) == standing.newest && seen.beat.run == rules.run;
  });
  return standing;
}

// What keeps them from forming a quorum; empty: nothing does.
std::string obstacle_of(const Standing& standing, const QuorumRules& rules, double watching_s) {
  const auto num_asking = std::ssize(standing.asking), num_training = std::ssize(standing.training),
             num_busy = num_training + std::ssize(standing.healing);
  if (num_asking + num_busy == 0) return "nobody is there";
  if (num_asking == 0) return "nobody asks for one";
  const auto num_there = num_asking + num_busy + std::ssize(standing.hung);
  if (num_there < rules.num_workers && watching_s < rules.stale_s)
    return concat("watches until all ", rules.num_workers, " workers have had time to report");
  if (num_asking < rules.min_workers)
    return concat("fewer than --min-workers ", rules.min_workers, " ask for one");
  // If all workers ask, none is left that might come with the state: it is lost.
  if (rules.run != 0 && !standing.has_run && num_asking < rules.num_workers)
    return concat("waits for a worker that has a state of run ", id_text(rules.run),
                  ": those that ask have none");
  if (standing.newest < standing.newest_busy)
    return concat("waits for worker ", standing.newest_busy_worker, ", whose state is newer");
  if (num_asking <= num_training) return "half or fewer of those that train or ask have asked";
  if (num_busy > 0 && standing.longest_wait_s < rules.join_timeout_s)
    return concat("waits up to ", rules.join_timeout_s, " s for those that train or heal");
  return "";
}

// " (asking: 0 1; training: 2)"
std::string roster(const Standing& standing) {
  std::vector<int> asking;
  for (const WorkerStatus& seen : standing.asking) asking.push_back(seen.beat.worker);
  std::string text;
  const auto add = [&](const char* what, const std::vector<int>& workers) {
    if (workers.empty()) return;
    text += concat(text.empty() ? " (" : "; ", what, ":");
    for (const int worker : workers) text += concat(" ", worker);
  };
  add("asking", asking);
  add("training", standing.training);
  add("healing", standing.healing);
  add("hung", standing.hung);
  add("not heard", standing.lost);
  return text.empty() ? "" : text + ")";
}

}  // namespace

std::string id_text(std::uint64_t id) {
  char text[32];
  std::snprintf(text, sizeof text, "%014llx", static_cast<unsigned long long>(id));
  return text;
}

std::uint64_t random_id() {
  std::random_device random;
  const std::uint64_t bits = std::uint64_t{random()} << 32 | random();
  return bits % kMostId + 1;
}

double beat_seconds(double join_timeout_s) {
  return std::clamp(join_timeout_s / 20, 0.01, 1.0);
}
double stale_seconds(double join_timeout_s) {
  return 10 * beat_seconds(join_timeout_s);
}

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

bool QuorumCounter::is_believable(const QuorumNumber& reported) const {
  return own_epochs_.contains(reported.lighthouse_epoch) ||
         reported.lighthouse_epoch <= *own_epochs_.begin() + kYear;
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
  const bool is_in_it = beat.process == self.process && beat.request == self.request;
  if (!is_in_it || beat.last_ended == beat.request) return beat;  // it has said all
  if (beat.phase == Phase::kAsking) beat.phase = self.donor ? Phase::kHealing : Phase::kTraining;
  beat.run = last.run;
  beat.last_quorum = last.number();
  beat.outer_steps = last.outer_steps + (is_committed ? 1 : 0);
  return beat;
}

std::string why_no_quorum(const std::vector<WorkerStatus>& workers, const QuorumRules& rules,
                          double watching_s) {
  const Standing standing = standing_of(workers, rules);
  const std::string obstacle = obstacle_of(standing, rules, watching_s);
  return obstacle.empty() ? "" : concat(obstacle, roster(standing));
}

std::optional<Quorum> decide_quorum(const std::vector<WorkerStatus>& workers,
                                    const QuorumRules& rules, double watching_s) {
  const Standing standing = standing_of(workers, rules);
  if (!obstacle_of(standing, rules, watching_s).empty()) return {};
  Quorum quorum = {.run = standing.has_run ? rules.run : 0,
                   .outer_steps = standing.newest.outer_steps};
  for (const WorkerStatus& seen : standing.asking) quorum.members.push_back(member_of(seen.beat));
  assign_donors(quorum, majority_hash(standing.asking, standing.newest));
  quorum.is_enough = std::ssize(quorum.contributors()) >= rules.min_workers;
  return quorum;
}

}  // namespace ladder
