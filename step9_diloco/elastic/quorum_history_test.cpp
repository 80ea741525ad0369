// The invariant of quorum.hpp over random histories: workers crash, come back from older
// checkpoints, freeze, hang and are slow, while the lighthouse does what decide_quorum() says.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "common/core/check.hpp"
#include "common/core/seed.hpp"
#include "step9_diloco/elastic/quorum.hpp"

namespace ladder {
namespace {

constexpr double kTick = 0.1;  // seconds
constexpr QuorumRules kRules = {.num_workers = 4, .stale_s = 1, .join_timeout_s = 2};

using Decide = std::function<std::optional<Quorum>(const std::vector<Sighting>&, double)>;

struct Checkpoint {
  std::int64_t outer_steps = 0;
  std::string hash = "start";
};

struct SimulatedWorker {
  Heartbeat beat;    // the state, as the worker knows it
  Checkpoint saved;  // its last checkpoint
  bool is_alive = true, is_frozen = false, is_hung = false;
  bool was_gone = true;  // lost or hung, or started anew, since it last agreed with the others
  double beat_s = 0, progress_s = 0, asked_s = 0, busy_until_s = 0, round_s = 1;
  std::int64_t assigned = 0, finished = 0;  // the last request with a quorum, with a decision

  bool is_active() const { return is_alive && !is_frozen && !is_hung; }
  bool is_there(double now_s) const {
    return now_s - beat_s <= kRules.stale_s && now_s - progress_s <= kRules.join_timeout_s;
  }
};

struct Round {
  Quorum quorum;
  std::set<int> voters;
  double deadline_s = 0;
  enum { kOpen, kCommitted, kAborted } decision = kOpen;
};

class History {
 public:
  History(int seed, Decide decide) : random_(seed), decide_(std::move(decide)) {
    for (int i = 0; i < kRules.num_workers; ++i) {
      workers_.emplace_back();
      workers_.back().beat.worker = i;
      workers_.back().beat.state_hash = workers_.back().saved.hash;
      workers_.back().round_s = 0.2 + 2 * random_.uniform();
    }
  }

  void run(double seconds, bool is_calm) {
    for (const double end_s = now_s_ + seconds; now_s_ < end_s; now_s_ += kTick) {
      for (SimulatedWorker& worker : workers_) {
        is_calm ? recover(worker) : suffer(worker);
        live(worker);
      }
      decide();
    }
  }

  const std::vector<std::string>& violations() const { return violations_; }
  std::int64_t num_quorums() const { return num_quorums_; }
  bool all_agree() const {
    return std::ranges::all_of(workers_, [&](const SimulatedWorker& worker) {
      return worker.beat.outer_steps + 1 >= workers_[0].beat.outer_steps &&
             worker.beat.outer_steps <= workers_[0].beat.outer_steps + 1;
    });
  }

 private:
  bool chance(double probability) { return random_.uniform() < probability; }

  void restart(SimulatedWorker& worker) {
    worker.is_alive = true;
    worker.is_frozen = worker.is_hung = false;
    worker.was_gone = true;
    const int number = worker.beat.worker;
    worker.beat = {.worker = number,
                   .epoch = worker.beat.epoch + 1,
                   .outer_steps = worker.saved.outer_steps,
                   .state_hash = worker.saved.hash};
    worker.assigned = worker.finished = 0;
    worker.busy_until_s = now_s_ + worker.round_s;
    worker.progress_s = now_s_;
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
      worker.saved = {worker.beat.outer_steps, worker.beat.state_hash};
    } else if (chance(0.01)) {
      worker.round_s = chance(0.3) ? 6 : 0.2 + 2 * random_.uniform();
    }
  }

  // One tick of a worker, and its heartbeat at the end of it.
  void live(SimulatedWorker& worker) {
    if (worker.is_active()) {
      worker.progress_s = now_s_;
      if (worker.assigned > worker.finished) {
        take_part(worker, round_of(worker));
      } else if (worker.beat.phase == Phase::kTraining && now_s_ >= worker.busy_until_s) {
        worker.beat.phase = Phase::kAsking;
        ++worker.beat.request;
        worker.asked_s = now_s_;
      }
    }
    if (worker.is_alive && !worker.is_frozen) worker.beat_s = now_s_;
    if (!worker.is_there(now_s_)) worker.was_gone = true;
  }

  Round& round_of(const SimulatedWorker& worker) {
    const auto has_it = [&](const Member& member) {
      return member.worker == worker.beat.worker && member.epoch == worker.beat.epoch &&
             member.request == worker.assigned;
    };
    return *std::ranges::find_if(rounds_, [&](const Round& round) {
      return std::ranges::any_of(round.quorum.members, has_it);
    });
  }

  void take_part(SimulatedWorker& worker, Round& round) {
    Heartbeat& beat = worker.beat;
    const bool heals = round.quorum.member(beat.worker).donor.has_value();
    if (beat.phase == Phase::kAsking) {  // its assignment arrives
      beat.phase = heals ? Phase::kHealing : Phase::kTraining;
      if (!heals) beat.last_quorum = round.quorum.id;
      worker.busy_until_s = now_s_ + 0.5 * worker.round_s;
    }
    if (now_s_ < worker.busy_until_s) return;  // until it has its donor's state, or the average
    if (beat.phase == Phase::kHealing) adopt(worker, round);
    if (!heals) round.voters.insert(beat.worker);
    if (round.decision == Round::kOpen) {
      if (round.voters.size() == round.quorum.contributors().size())
        round.decision = Round::kCommitted;
      else if (now_s_ < round.deadline_s)
        return;
      else
        round.decision = Round::kAborted;
    }
    if (round.decision == Round::kCommitted) {
      beat.outer_steps = round.quorum.outer_steps + 1;
      beat.state_hash = concat("state ", round.quorum.id);
    }
    worker.finished = worker.assigned;
    worker.busy_until_s = now_s_ + worker.round_s;
  }

  void adopt(SimulatedWorker& worker, const Round& round) {
    // The state may be one that everybody had lost when the next quorum was formed.
    if (round.quorum.id != num_quorums_) worker.was_gone = true;
    Heartbeat& beat = worker.beat;
    beat.phase = Phase::kTraining;
    beat.last_quorum = round.quorum.id;
    beat.outer_steps = round.quorum.outer_steps;
    beat.state_hash = round.quorum.contributors().front().state_hash;
  }

  std::vector<Sighting> sightings() const {
    std::vector<Sighting> list;
    for (const SimulatedWorker& worker : workers_) {
      list.push_back({.beat = worker.beat,
                      .beat_age_s = now_s_ - worker.beat_s,
                      .progress_age_s = now_s_ - worker.progress_s,
                      .asking_s = now_s_ - worker.asked_s});
      Heartbeat& beat = list.back().beat;
      if (beat.phase == Phase::kAsking && beat.request <= worker.assigned)
        beat.phase = Phase::kTraining;
    }
    return list;
  }

  void check_nothing_is_undone(const Quorum& quorum) {
    for (const SimulatedWorker& worker : workers_) {
      const std::int64_t outer_steps = worker.beat.outer_steps;
      const auto is_self = [&](const Member& member) {
        return member.worker == worker.beat.worker && member.donor;
      };
      const bool heals = std::ranges::any_of(quorum.members, is_self);
      if ((worker.is_there(now_s_) && outer_steps > quorum.outer_steps) ||
          (heals && !worker.was_gone && outer_steps == quorum.outer_steps))
        violations_.push_back(concat("quorum ", quorum.id, " at ", quorum.outer_steps,
                                     " undoes step ", outer_steps, " of worker ",
                                     worker.beat.worker));
    }
  }

  void decide() {
    std::optional<Quorum> quorum = decide_(sightings(), now_s_);
    if (!quorum) return;
    quorum->id = ++num_quorums_;
    check_nothing_is_undone(*quorum);
    for (Round& round : rounds_)
      if (round.decision == Round::kOpen) round.decision = Round::kAborted;
    for (const Member& member : quorum->members) {
      SimulatedWorker& worker = workers_[static_cast<std::size_t>(member.worker)];
      worker.assigned = member.request;
      worker.was_gone = false;
    }
    rounds_.push_back({.quorum = *quorum, .voters = {}, .deadline_s = now_s_ + 1});
  }

  Random random_;
  Decide decide_;
  std::vector<SimulatedWorker> workers_;
  std::vector<Round> rounds_;
  std::vector<std::string> violations_;
  double now_s_ = 0;
  std::int64_t num_quorums_ = 0;
};

constexpr int kNumHistories = 300;

TEST(QuorumHistory, NothingThatAWorkerWhichIsThereKnowsIsEverUndone) {
  std::int64_t num_quorums = 0;
  for (int seed = 0; seed < kNumHistories; ++seed) {
    SCOPED_TRACE(seed);
    History history(seed, [](const std::vector<Sighting>& seen, double now_s) {
      return decide_quorum(seen, kRules, now_s);
    });
    history.run(200, /*is_calm=*/false);
    ASSERT_TRUE(history.violations().empty()) << history.violations().front();
    const std::int64_t before = history.num_quorums();
    history.run(60, /*is_calm=*/true);
    ASSERT_TRUE(history.violations().empty()) << history.violations().front();
    EXPECT_GT(history.num_quorums(), before + 3);  // nobody waits for ever
    EXPECT_TRUE(history.all_agree());
    num_quorums += before;
  }
  std::cout << num_quorums << " quorums in " << kNumHistories << " histories\n";
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
  EXPECT_GT(num_caught([](std::vector<Sighting> seen, double now_s) {
              for (Sighting& one : seen) {
                if (one.beat.phase == Phase::kAsking) continue;
                one.beat.outer_steps = 0;
                one.beat.last_quorum = 0;
              }
              return decide_quorum(seen, kRules, now_s);
            }),
            kNumHistories / 4);
}

// and one that takes an old state for as good as a new one.
TEST(QuorumHistory, CatchesARuleThatTakesAnOldStateForANewOne) {
  EXPECT_GT(num_caught([](std::vector<Sighting> seen, double now_s) {
              for (Sighting& one : seen) one.beat.last_quorum = 0;
              return decide_quorum(seen, kRules, now_s);
            }),
            0);
}

}  // namespace
}  // namespace ladder
