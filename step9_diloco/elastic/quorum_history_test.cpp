// The invariant of quorum.hpp over random histories: workers crash, come back from older
// checkpoints, freeze, hang and are slow, and the lighthouse is started again, while it does what
// decide_quorum() says.
//
// Each committed state has a parent: the one that its round began with. Something is undone if the
// state of a fresh worker is not an ancestor of the state that a quorum agrees on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <set>
#include <utility>

#include "common/core/check.hpp"
#include "common/core/seed.hpp"
#include "step9_diloco/elastic/quorum.hpp"

namespace ladder {
namespace {

constexpr double kTick = 0.1;  // seconds

using Decide = std::function<std::optional<Quorum>(const std::vector<WorkerStatus>&,
                                                   const QuorumRules&, double)>;

struct Checkpoint {
  QuorumNumber last_quorum;
  std::int64_t outer_steps = 0;
  std::string hash = "start";
};

struct SimulatedWorker {
  Heartbeat beat;                // as the lighthouse hears it
  Checkpoint state, saved;       // what it has, and had when it saved last
  std::optional<Quorum> answer;  // the lighthouse's last one to it
  std::optional<Quorum> round;   // in which it is
  bool is_alive = true, is_frozen = false, is_hung = false;
  bool is_fresh = false;        // it has been there since it last agreed with the others
  bool has_been_there = false;  // since its last answer
  bool has_healed = false;      // in this round
  double beat_s = 0, progress_s = 0, asked_s = 0, busy_until_s = 0, round_s = 1, deadline_s = 0;

  bool is_active() const { return is_alive && !is_frozen && !is_hung; }
  const Member* answered() const {  // what it asks; null if there is no answer to that
    if (!answer || beat.phase != Phase::kAsking) return nullptr;
    const Member& self = answer->member(beat.worker);
    return self.epoch == beat.epoch && self.request == beat.request ? &self : nullptr;
  }
};

struct Key {  // that decides a round
  std::set<int> voters;
  enum { kOpen, kCommitted, kAborted } value = kOpen;
};

class History {
 public:
  History(int seed, Decide decide)
      : random_(derive_seed(7, concat(seed))), decide_(std::move(decide)) {
    rules_ = {.num_workers = 4, .min_workers = 1 + seed % 3, .stale_s = 1, .join_timeout_s = 2};
    for (int i = 0; i < rules_.num_workers; ++i) {
      workers_.emplace_back();
      workers_.back().beat.worker = i;
      workers_.back().beat.state_hash = workers_.back().state.hash;
      workers_.back().round_s = 0.2 + 2 * random_.uniform();
    }
  }

  void run(double seconds, bool is_calm) {
    for (const double end_s = now_s_ + seconds; now_s_ < end_s; now_s_ += kTick) {
      if (!is_calm && chance(0.005)) restart_lighthouse();
      for (SimulatedWorker& worker : workers_) {
        is_calm ? recover(worker) : suffer(worker);
        live(worker);
      }
      if (has_lighthouse()) decide();
    }
  }

  const std::vector<std::string>& violations() const { return violations_; }
  std::int64_t num_quorums() const { return num_quorums_; }
  bool all_agree() const {
    return std::ranges::all_of(workers_, [&](const SimulatedWorker& worker) {
      return worker.state.outer_steps + 1 >= workers_[0].state.outer_steps &&
             worker.state.outer_steps <= workers_[0].state.outer_steps + 1;
    });
  }

 private:
  bool chance(double probability) { return random_.uniform() < probability; }
  std::uint64_t epoch_at(double clock_s) {
    return static_cast<std::uint64_t>(1e6 * (1 + clock_s)) + random_.below(1000);
  }
  bool has_lighthouse() const { return now_s_ >= lighthouse_s_; }

  // It is away for a while, and then knows nothing. Its clock may be behind: far behind several
  // others, with nobody there who knows them all, nothing helps (4 of 10,000 histories).
  void restart_lighthouse() {
    lighthouse_s_ = now_s_ + (chance(0.5) ? 0 : 3 * random_.uniform());
    const double clock_s = chance(0.3) ? now_s_ * random_.uniform() : now_s_;
    counter_ = QuorumCounter(epoch_at(clock_s));
    keys_.clear();
    committed_ = {};
    for (SimulatedWorker& worker : workers_) worker.answer.reset();
  }

  void restart(SimulatedWorker& worker) {
    SimulatedWorker fresh;
    fresh.state = fresh.saved = worker.saved;
    fresh.round_s = worker.round_s;
    fresh.beat = {.worker = worker.beat.worker, .epoch = worker.beat.epoch + 1};
    say_state(fresh, fresh.state);
    fresh.busy_until_s = now_s_ + fresh.round_s;
    fresh.progress_s = now_s_;
    worker = fresh;
  }
  void recover(SimulatedWorker& worker) {
    if (!worker.is_alive) restart(worker);
    worker.is_frozen = worker.is_hung = false;
    worker.round_s = std::min(worker.round_s, 0.8);
  }
  void suffer(SimulatedWorker& worker) {
    if (!worker.is_alive) {
      if (chance(0.05)) restart(worker);
    } else if (chance(0.01)) {
      worker.is_alive = false;
    } else if (chance(worker.is_frozen ? 0.1 : 0.01)) {
      worker.is_frozen = !worker.is_frozen;
    } else if (chance(worker.is_hung ? 0.05 : 0.005)) {
      worker.is_hung = !worker.is_hung;
    } else if (chance(0.02)) {
      worker.saved = worker.state;
    } else if (chance(0.01)) {
      worker.round_s = chance(0.3) ? 6 : 0.2 + 2 * random_.uniform();
    }
  }

  bool is_there(const SimulatedWorker& worker) const {
    return now_s_ - worker.beat_s <= rules_.stale_s &&
           now_s_ - worker.progress_s <= rules_.join_timeout_s;
  }

  bool is_fresh(const SimulatedWorker& worker) const {
    const Member* const answered = worker.answered();
    return worker.is_fresh || (answered && !answered->donor && worker.has_been_there);
  }

  // One tick of a worker, and its heartbeat at the end of it.
  void live(SimulatedWorker& worker) {
    Heartbeat& beat = worker.beat;
    if (worker.is_active()) {
      worker.progress_s = now_s_;
      if (beat.phase == Phase::kAsking) {
        hear_answer(worker);
      } else if (worker.round) {
        take_part(worker);
      } else if (now_s_ >= worker.busy_until_s) {
        ask(worker);
      }
    }
    if (worker.is_alive && !worker.is_frozen) worker.beat_s = now_s_;
    if (!is_there(worker)) worker.is_fresh = worker.has_been_there = false;
  }

  void say_state(SimulatedWorker& worker, const Checkpoint& state) {
    worker.beat.last_quorum = state.last_quorum;
    worker.beat.outer_steps = state.outer_steps;
  }

  void ask(SimulatedWorker& worker) {
    ++worker.beat.request;
    worker.beat.phase = Phase::kAsking;
    worker.beat.state_hash = worker.state.hash;
    say_state(worker, worker.state);
    worker.asked_s = now_s_;
  }

  void hear_answer(SimulatedWorker& worker) {
    Heartbeat& beat = worker.beat;
    const Member* const self = worker.answered();
    if (self == nullptr) return;
    worker.round = worker.answer;
    worker.has_healed = false;
    worker.deadline_s = now_s_ + 1;
    worker.busy_until_s = now_s_ + 0.5 * worker.round_s;
    beat.phase = self->donor ? Phase::kHealing : Phase::kTraining;
    if (!self->donor) {
      worker.state.last_quorum = worker.round->number();
      worker.is_fresh = worker.has_been_there;
    }
    say_state(worker, {worker.round->number(), worker.round->outer_steps});
  }

  void take_part(SimulatedWorker& worker) {
    if (now_s_ < worker.busy_until_s) return;  // until it has its donor's state, or the average
    const Quorum round = *worker.round;
    const Member& self = round.member(worker.beat.worker);
    if (self.donor && !std::exchange(worker.has_healed, true) && !heal(worker)) return;
    const auto num_contributors = static_cast<int>(round.contributors().size());
    const auto key = keys_.find(round.number());
    const bool is_known = has_lighthouse() && key != keys_.end();
    if (is_known && num_contributors >= rules_.min_workers) {
      if (!self.donor) key->second.voters.insert(worker.beat.worker);
      const bool is_unanimous = std::ssize(key->second.voters) == num_contributors;
      if (key->second.value == Key::kOpen) {
        if (!is_unanimous && now_s_ < worker.deadline_s) return;
        if (is_unanimous || !self.donor)
          key->second.value = is_unanimous ? Key::kCommitted : Key::kAborted;
      }
      if (!is_unanimous && chance(0.5)) return;  // it polls every now and then
      const bool has_average = !self.donor || chance(0.7);
      if (key->second.value == Key::kCommitted && has_average) take_outer_step(worker, round);
    }
    end_round(worker);
  }

  void take_outer_step(SimulatedWorker& worker, const Quorum& round) {
    const std::string hash = concat("state ", round.lighthouse_epoch, " ", round.id);
    parents_.try_emplace(hash, worker.state.hash);
    worker.state = {round.number(), round.outer_steps + 1, hash};
    say_state(worker, worker.state);
  }

  void end_round(SimulatedWorker& worker) {
    worker.beat.phase = Phase::kTraining;
    worker.beat.last_ended = worker.beat.request;
    worker.round.reset();
    worker.busy_until_s = now_s_ + worker.round_s;
  }

  // False if it fails: its donor has died in the middle of it. Then it asks again at once.
  bool heal(SimulatedWorker& worker) {
    const Member& donor = worker.round->member(*worker.round->member(worker.beat.worker).donor);
    const SimulatedWorker& other = workers_[static_cast<std::size_t>(donor.worker)];
    if ((!other.is_alive || other.beat.epoch != donor.epoch) && chance(0.5)) {
      worker.round.reset();
      ask(worker);
      return false;
    }
    worker.beat.phase = Phase::kTraining;
    worker.state = {worker.round->number(), donor.outer_steps, donor.state_hash};
    worker.is_fresh = worker.has_been_there;
    return true;
  }

  std::vector<WorkerStatus> workers() const {
    std::vector<WorkerStatus> list;
    for (const SimulatedWorker& worker : workers_) {
      if (worker.beat_s < lighthouse_s_) continue;
      const auto age_s = [&](double since_s) { return now_s_ - std::max(since_s, lighthouse_s_); };
      Heartbeat beat = worker.beat;
      if (worker.answer)
        beat = as_known(beat, *worker.answer, worker.answer->number() == committed_);
      beat.last_quorum = counter_.in_order(beat.last_quorum);
      list.push_back({.beat = beat,
                      .beat_age_s = age_s(worker.beat_s),
                      .progress_age_s = age_s(worker.progress_s),
                      .asking_s = age_s(worker.asked_s)});
    }
    return list;
  }

  bool is_ancestor(const std::string& old, std::string hash) const {  // or itself
    while (hash != old) {
      const auto parent = parents_.find(hash);
      if (parent == parents_.end()) return false;
      hash = parent->second;
    }
    return true;
  }

  void check_nothing_is_undone(const Quorum& quorum) {
    const std::vector<Member>& members = quorum.members;
    const std::string hash = std::ranges::find_if(members, [](const Member& member) {
                               return !member.donor;
                             })->state_hash;
    for (const SimulatedWorker& worker : workers_)
      if (is_fresh(worker) && !is_ancestor(worker.state.hash, hash))
        violations_.push_back(concat("quorum ", quorum.id, ", ", hash, " undoes ",
                                     worker.state.hash, " of worker ", worker.beat.worker));
  }

  void decide() {
    for (const SimulatedWorker& worker : workers_)
      if (worker.beat_s >= lighthouse_s_) counter_.hear(worker.beat.last_quorum);
    std::optional<Quorum> quorum = decide_(workers(), rules_, now_s_ - lighthouse_s_);
    if (!quorum) return;
    const auto last = keys_.find(last_quorum_);
    if (last != keys_.end()) {  // ends the last round
      if (last->second.value == Key::kOpen) last->second.value = Key::kAborted;
      const bool is_committed = last->second.value == Key::kCommitted;
      if (is_committed && std::exchange(committed_, last_quorum_) != last_quorum_) return;
    }
    last_quorum_ = counter_.next();
    ++num_quorums_;
    quorum->lighthouse_epoch = last_quorum_.lighthouse_epoch;
    quorum->id = last_quorum_.id;
    check_nothing_is_undone(*quorum);
    for (const Member& member : quorum->members) {
      SimulatedWorker& worker = workers_[static_cast<std::size_t>(member.worker)];
      worker.answer = quorum;
      worker.has_been_there = true;
    }
    keys_[last_quorum_];
  }

  Random random_;
  Decide decide_;
  QuorumRules rules_;
  std::vector<SimulatedWorker> workers_;
  std::map<QuorumNumber, Key> keys_;
  std::map<std::string, std::string> parents_;  // of each committed state
  std::vector<std::string> violations_;
  double now_s_ = 0, lighthouse_s_ = 0;  // since when there is a lighthouse
  QuorumCounter counter_{epoch_at(0)};
  QuorumNumber last_quorum_, committed_;
  std::int64_t num_quorums_ = 0;
};

constexpr int kNumHistories = 300;

TEST(QuorumHistory, NothingThatAFreshWorkerHasIsEverUndone) {
  const char* const text = std::getenv("LADDER_HISTORIES");
  const int num_histories = text == nullptr ? kNumHistories : std::atoi(text);
  std::int64_t num_quorums = 0;
  for (int seed = 0; seed < num_histories; ++seed) {
    SCOPED_TRACE(seed);
    History history(seed, decide_quorum);
    history.run(200, /*is_calm=*/false);
    const std::int64_t before = history.num_quorums();
    history.run(60, /*is_calm=*/true);
    ASSERT_TRUE(history.violations().empty()) << history.violations().front();
    EXPECT_GT(history.num_quorums(), before + 3);  // nobody waits for ever
    EXPECT_TRUE(history.all_agree());
    num_quorums += before;
  }
  std::cout << num_quorums << " quorums in " << num_histories << " histories\n";
}

int num_caught(const Decide& decide) {
  int num = 0;
  for (int seed = 0; seed < kNumHistories; ++seed) {
    History history(seed, decide);
    history.run(200, /*is_calm=*/false);
    num += !history.violations().empty();
  }
  std::cout << "caught in " << num << " of " << kNumHistories << " histories\n";
  return num;
}

// The histories are hard enough: they catch a rule that does not know what busy workers have,
TEST(QuorumHistory, CatchesARuleThatIgnoresBusyWorkers) {
  EXPECT_GT(num_caught([](std::vector<WorkerStatus> seen, const QuorumRules& rules, double now_s) {
              for (WorkerStatus& one : seen) {
                if (one.beat.phase == Phase::kAsking) continue;
                one.beat.outer_steps = 0;
                one.beat.last_quorum = {};
              }
              return decide_quorum(seen, rules, now_s);
            }),
            kNumHistories / 4);
}

// one for which the longer state is the newer one, however old its quorum is,
TEST(QuorumHistory, CatchesARuleThatTakesTheLongerStateForTheNewerOne) {
  EXPECT_GT(num_caught([](std::vector<WorkerStatus> seen, const QuorumRules& rules, double now_s) {
              for (WorkerStatus& one : seen)
                one.beat.last_quorum.lighthouse_epoch =
                    static_cast<std::uint64_t>(one.beat.outer_steps);
              return decide_quorum(seen, rules, now_s);
            }),
            kNumHistories / 20);
}

}  // namespace
}  // namespace ladder
