// The invariant of quorum.hpp over random histories: workers crash, come back from older
// checkpoints or with nothing, freeze, hang, are slow and lose reports, and the lighthouse is
// started again. The
// lighthouse is the real one, with a clock of its own; the workers are simulated.
//
// Each committed state has a parent: the one that its round began with. Something is undone if the
// state of a fresh worker is not an ancestor of the state that a quorum agrees on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <utility>

#include "common/core/check.hpp"
#include "common/core/seed.hpp"
#include "step9_diloco/elastic/lighthouse.hpp"

namespace ladder {
namespace {

constexpr double kTick = 0.1;  // seconds

struct Checkpoint {
  History history;
  std::int64_t outer_steps = 0;
  std::string hash = "start";
};

struct SimulatedWorker {
  Report report;                 // the next one
  Checkpoint state, saved;       // what it has, and had when it saved last
  std::optional<Quorum> quorum;  // whose round it is in
  std::optional<Quorum> answer;  // the lighthouse's last one, which it may not have heard of yet
  Decision decision = Decision::kOpen;
  bool is_alive = true, is_frozen = false, is_hung = false;
  bool is_fresh = false;        // it has been there since it last agreed with the others
  bool has_been_there = false;  // since its last answer
  bool has_healed = false;      // in this round
  bool is_heard = false;        // by the lighthouse that is there
  std::int64_t reported_progress = 0;
  double beat_s = 0, progress_s = 0, busy_until_s = 0, round_s = 1, deadline_s = 0;

  bool is_active() const { return is_alive && !is_frozen && !is_hung; }
  const Member& self() const { return quorum->member(report.beat.worker); }
};

using Lie = std::function<void(Heartbeat&)>;  // what a wrong rule would make of a heartbeat

class Past {
 public:
  explicit Past(int seed, Lie lie = {})
      : random_(derive_seed(7, concat(seed))), lie_(std::move(lie)) {
    rules_ = {.num_workers = 4, .min_workers = 1 + seed % 3, .stale_s = 1, .join_timeout_s = 2};
    for (int i = 0; i < rules_.num_workers; ++i) {
      workers_.emplace_back();
      workers_.back().report = first_report(i, {});
      workers_.back().round_s = 0.2 + 2 * random_.uniform();
    }
  }

  void run(double seconds, bool is_calm) {
    for (const double end_s = now_s_ + seconds; now_s_ < end_s; now_s_ += kTick) {
      if (!is_calm && chance(0.005)) kill_lighthouse();
      if (!lighthouse_ && now_s_ >= lighthouse_s_) start_lighthouse();
      for (SimulatedWorker& worker : workers_) {
        is_calm ? recover(worker) : suffer(worker);
        if (worker.is_active()) act(worker);
        if (worker.is_alive && !worker.is_frozen && !chance(0.1)) send_report(worker);
        if (!is_there(worker)) worker.is_fresh = worker.has_been_there = false;
      }
      if (lighthouse_) form_quorum();
    }
  }

  const std::vector<std::string>& violations() const { return violations_; }
  std::int64_t num_quorums() const { return num_quorums_; }
  std::int64_t num_refused() const { return num_refused_; }
  bool all_agree() const {
    const auto [least, most] =
        std::ranges::minmax(workers_, {}, [](const auto& one) { return one.state.outer_steps; });
    return most.state.outer_steps - least.state.outer_steps <= 1;
  }

 private:
  bool chance(double probability) { return random_.uniform() < probability; }
  std::uint64_t epoch_at(double clock_s) {
    return static_cast<std::uint64_t>(1e6 * (1 + clock_s)) + random_.below(1000);
  }

  // It is away for a while, and its clock may be behind.
  void kill_lighthouse() {
    lighthouse_.reset();
    lighthouse_s_ = now_s_ + (chance(0.5) ? 0 : 3 * random_.uniform());
    epoch_ = epoch_at(chance(0.3) ? now_s_ * random_.uniform() : now_s_);
    for (SimulatedWorker& worker : workers_) worker.answer.reset();
  }
  void start_lighthouse() {
    lighthouse_s_ = now_s_;
    lighthouse_.emplace(epoch_, /*is_public=*/false, rules_, say_nothing,
                        [this] { return now_s_; });
    for (SimulatedWorker& worker : workers_) worker.is_heard = false;
    last_heard_ = {};
  }

  Report first_report(int worker, const Checkpoint& state) {
    return {.beat = {.worker = worker,
                     .process = ++num_processes_,
                     .run = state.history.run,
                     .last_quorum = state.history.last_quorum,
                     .outer_steps = state.outer_steps,
                     .address = "127.0.0.1"},
            .num_workers = rules_.num_workers,
            .settings = {{"--lr", "1"}}};
  }

  void restart(SimulatedWorker& worker) {
    SimulatedWorker fresh;
    fresh.state = fresh.saved = worker.saved;
    fresh.round_s = worker.round_s;
    fresh.report = first_report(worker.report.beat.worker, fresh.state);
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
      if (chance(0.02)) worker.saved = {};  // its disk is lost
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

  // Whoever has died before a new lighthouse has heard a report that counts is lost for it.
  bool is_there(const SimulatedWorker& worker) const {
    const bool is_unknown =
        lighthouse_ && !worker.is_heard && now_s_ - lighthouse_s_ >= rules_.stale_s;
    return !is_unknown && now_s_ - worker.beat_s <= rules_.stale_s &&
           now_s_ - worker.progress_s <= rules_.join_timeout_s;
  }

  // A worker is fresh also from the moment on in which the lighthouse agrees on its state.
  bool is_fresh(const SimulatedWorker& worker) const {
    const Heartbeat& beat = worker.report.beat;
    const Member* const self = worker.answer ? &worker.answer->member(beat.worker) : nullptr;
    const bool is_answered = self != nullptr && beat.phase == Phase::kAsking &&
                             self->process == beat.process && self->request == beat.request;
    return worker.is_fresh || (is_answered && !self->donor && worker.has_been_there);
  }

  // One tick of a worker's training.
  void act(SimulatedWorker& worker) {
    ++worker.report.beat.progress;
    if (worker.report.beat.phase == Phase::kAsking || now_s_ < worker.busy_until_s) return;
    worker.quorum ? take_part(worker) : ask(worker);
  }

  // What the worker's Membership does, whatever its training thread does meanwhile.
  void send_report(SimulatedWorker& worker) {
    worker.beat_s = now_s_;
    const std::int64_t progress = worker.report.beat.progress;
    if (std::exchange(worker.reported_progress, progress) != progress) worker.progress_s = now_s_;
    if (!lighthouse_) return;
    Report report = worker.report;
    ++worker.report.number;
    if (lie_) lie_(report.beat);
    const Answer answer = lighthouse_->answer(report);
    if (!answer.refusal.empty()) return leave_refused(worker, answer.refusal);
    worker.is_heard = answer.wait.empty() && !answer.wants_settings;
    if (worker.is_heard) last_heard_ = std::max(last_heard_, worker.report.beat.last_quorum);
    if (chance(0.05)) return;  // it gets lost
    worker.report.settings = answer.wants_settings ? GroupSettings{{"--lr", "1"}} : GroupSettings();
    if (worker.quorum && worker.decision == Decision::kOpen) worker.decision = answer.decision;
    if (answer.quorum && worker.report.beat.phase == Phase::kAsking)
      begin_round(worker, *answer.quorum);
  }

  // While it was away, others have founded a run: those that had nothing, at a lighthouse that knew
  // nothing. It goes on with theirs.
  void leave_refused(SimulatedWorker& worker, const std::string& refusal) {
    check(refusal.find("two runs never mix") != std::string::npos, refusal);
    ++num_refused_;
    if (worker.is_fresh) note_violation(concat("a fresh worker is refused: ", refusal));
    worker.saved = {};
    restart(worker);
  }

  void ask(SimulatedWorker& worker) {
    Heartbeat& beat = worker.report.beat;
    ++beat.request;
    beat.phase = Phase::kAsking;
    beat.run = worker.state.history.run;
    beat.last_quorum = worker.state.history.last_quorum;
    beat.outer_steps = worker.state.outer_steps;
    beat.state_hash = worker.state.hash;
  }

  void begin_round(SimulatedWorker& worker, const Quorum& quorum) {
    worker.quorum = quorum;
    worker.decision = Decision::kOpen;
    worker.has_healed = false;
    worker.deadline_s = now_s_ + 1;
    worker.busy_until_s = now_s_ + 0.5 * worker.round_s;
    const bool is_healthy = !worker.self().donor;
    worker.report.round = quorum.number();
    worker.report.vote = Vote::kNone;
    worker.report.beat.phase = is_healthy ? Phase::kTraining : Phase::kHealing;
    worker.report.beat.run = quorum.run;
    worker.report.beat.last_quorum = quorum.number();
    worker.report.beat.outer_steps = quorum.outer_steps;
    if (is_healthy) {
      worker.state.history = {quorum.run, quorum.number()};
      worker.is_fresh = worker.has_been_there;
    }
  }

  // It has its donor's state, or the average, and votes until it hears the decision.
  void take_part(SimulatedWorker& worker) {
    const bool is_listener = worker.self().donor.has_value();
    if (is_listener && !std::exchange(worker.has_healed, true) && !heal(worker)) return;
    if (!worker.quorum->is_enough) return train_on(worker);
    const bool is_late = now_s_ >= worker.deadline_s;
    if (!is_listener && worker.report.vote != Vote::kAgainst)
      worker.report.vote = is_late ? Vote::kAgainst : Vote::kFor;
    if (worker.decision == Decision::kOpen) {
      const bool is_in_vain = now_s_ >= worker.deadline_s + 1 || (is_late && is_listener);
      if (!is_in_vain || chance(0.5)) return;
    }
    const bool has_average = !is_listener || chance(0.7);
    const bool is_taken = worker.decision == Decision::kCommit && has_average;
    if (is_taken) take_outer_step(worker);
    worker.report.beat.last_ended = worker.report.beat.request;
    worker.report.beat.outer_steps += is_taken ? 1 : 0;
    train_on(worker);
  }

  void take_outer_step(SimulatedWorker& worker) {
    const QuorumNumber number = worker.quorum->number();
    const std::string hash = concat("state ", number.lighthouse_epoch, " ", number.id);
    parents_.try_emplace(hash, worker.state.hash);
    worker.state = {{worker.quorum->run, number}, worker.quorum->outer_steps + 1, hash};
  }

  void train_on(SimulatedWorker& worker) {
    worker.quorum.reset();
    worker.report.round = {};
    worker.report.vote = Vote::kNone;
    worker.busy_until_s = now_s_ + worker.round_s;
  }

  // False if it fails: its donor has died in the middle of it. Then it asks again at once.
  bool heal(SimulatedWorker& worker) {
    const Member& donor = worker.quorum->member(*worker.self().donor);
    const SimulatedWorker& other = workers_[static_cast<std::size_t>(donor.worker)];
    if ((!other.is_alive || other.report.beat.process != donor.process) && chance(0.5)) {
      train_on(worker);
      ask(worker);
      return false;
    }
    worker.report.beat.phase = Phase::kTraining;
    worker.state = {
        {worker.quorum->run, worker.quorum->number()}, donor.outer_steps, donor.state_hash};
    worker.is_fresh = worker.has_been_there;
    return true;
  }

  bool is_ancestor(const std::string& old, std::string hash) const {  // or itself
    while (hash != old) {
      const auto parent = parents_.find(hash);
      if (parent == parents_.end()) return false;
      hash = parent->second;
    }
    return true;
  }

  // A lighthouse whose clock is behind, and that hears of nobody who knows of the last quorum,
  // counts on from an earlier one. From then on an older state may look newer: 6 of 20,000
  // histories undo something afterwards, which is not promised.
  void note_violation(const std::string& what) {
    if (!is_out_of_order_) violations_.push_back(what);
  }

  void form_quorum() {
    const std::optional<Quorum> quorum = lighthouse_->form_quorum();
    if (!quorum) return;
    ++num_quorums_;
    is_out_of_order_ |= quorum->number() < last_ && last_heard_ < last_;
    last_heard_ = std::max(last_heard_, quorum->number());
    last_ = std::max(last_, quorum->number());
    const auto healthy =
        std::ranges::find_if(quorum->members, [](const Member& one) { return !one.donor; });
    for (const SimulatedWorker& worker : workers_)
      if (is_fresh(worker) && !is_ancestor(worker.state.hash, healthy->state_hash))
        note_violation(concat("quorum ", quorum->id, ", ", healthy->state_hash, " undoes ",
                              worker.state.hash, " of worker ", worker.report.beat.worker));
    for (const Member& member : quorum->members) {
      SimulatedWorker& worker = workers_[static_cast<std::size_t>(member.worker)];
      worker.answer = quorum;
      worker.has_been_there = true;
    }
  }

  Random random_;
  Lie lie_;
  QuorumRules rules_;
  std::vector<SimulatedWorker> workers_;
  std::map<std::string, std::string> parents_;  // of each committed state
  std::vector<std::string> violations_;
  QuorumNumber last_, last_heard_;  // formed, and of those that the lighthouse knows of
  bool is_out_of_order_ = false;
  double now_s_ = 0, lighthouse_s_ = 0;  // since when there is a lighthouse
  std::uint64_t epoch_ = epoch_at(0);
  std::optional<Lighthouse> lighthouse_;
  std::int64_t num_quorums_ = 0, num_refused_ = 0;
  std::uint64_t num_processes_ = 0;
};

constexpr int kNumHistories = 150;

TEST(QuorumHistory, NothingThatAFreshWorkerHasIsEverUndone) {
  const char* const text = std::getenv("LADDER_HISTORIES");
  const int num_histories = text == nullptr ? kNumHistories : std::atoi(text);
  std::int64_t num_quorums = 0, num_refused = 0;
  for (int seed = 0; seed < num_histories; ++seed) {
    SCOPED_TRACE(seed);
    Past history(seed);
    history.run(200, /*is_calm=*/false);
    const std::int64_t before = history.num_quorums();
    history.run(60, /*is_calm=*/true);
    ASSERT_TRUE(history.violations().empty()) << history.violations().front();
    EXPECT_GT(history.num_quorums(), before + 3);  // nobody waits for ever
    EXPECT_TRUE(history.all_agree());
    num_quorums += before;
    num_refused += history.num_refused();
  }
  std::cout << num_quorums << " quorums and " << num_refused << " workers of another run in "
            << num_histories << " histories\n";
}

// The histories are hard enough: half of them catch, several times, a lighthouse that does not
// know what busy workers have, and one for which the longer state is the newer one, however old its
// quorum is.
TEST(QuorumHistory, CatchesWrongRules) {
  const Lie busy_workers_have_nothing = [](Heartbeat& beat) {
    if (beat.phase == Phase::kAsking) return;
    beat.outer_steps = 0;
    beat.last_quorum = {};
  };
  const Lie longer_is_newer = [](Heartbeat& beat) {
    beat.last_quorum.lighthouse_epoch = static_cast<std::uint64_t>(beat.outer_steps);
  };
  for (const Lie& lie : {busy_workers_have_nothing, longer_is_newer}) {
    int num_caught = 0;
    for (int seed = 0; seed < kNumHistories / 2 && num_caught < 3; ++seed) {
      Past history(seed, lie);
      history.run(200, /*is_calm=*/false);
      num_caught += !history.violations().empty();
    }
    EXPECT_EQ(num_caught, 3);
  }
}

}  // namespace
}  // namespace ladder
