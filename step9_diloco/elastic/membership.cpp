#include "step9_diloco/elastic/membership.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/core/check.hpp"
#include "step9_diloco/elastic/lighthouse_client.hpp"

namespace ladder {
namespace {

constexpr double kAskPause = 0.003;   // seconds between two reports of one that waits for an answer
constexpr double kRoundPause = 0.02;  // of one whose round is in progress
constexpr double kLastAttempt = 1;    // seconds: see await_decision()
constexpr std::chrono::milliseconds kWaitPause(5);  // between two looks at what others want

}  // namespace

Membership::Membership(const ElasticOptions& options, const std::optional<CurveKeys>& keys,
                       const Start& start, Log log)
    : options_(options), keys_(keys), settings_(start.settings), log_(std::move(log)) {
  report_ = {.beat = {.worker = options.worker,
                      .process = random_id(),
                      .run = start.history.run,
                      .last_quorum = start.history.last_quorum,
                      .outer_steps = start.outer_steps,
                      .address = start.address},
             .num_workers = options.num_workers,
             .settings = settings_};
  thread_ = std::thread([this] { run(); });
}

Membership::~Membership() {
  {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Membership::leave() {
  std::unique_lock lock(mutex_);
  report_.is_leaving = true;
  say_at_once();
  changed_.wait_for(lock, std::chrono::seconds(1), [&] { return has_ended_; });
}

void Membership::say_at_once() {
  is_due_ = true;
  changed_.notify_all();
}

void Membership::train() {
  const std::lock_guard lock(mutex_);
  report_.beat.phase = Phase::kTraining;
  say_at_once();
}

void Membership::end_round(bool is_taken) {
  const std::lock_guard lock(mutex_);
  report_.beat.last_ended = report_.beat.request;
  report_.beat.outer_steps += is_taken ? 1 : 0;
  report_.round = {};
  report_.vote = Vote::kNone;
  say_at_once();
}

std::optional<Quorum> Membership::form_quorum(const State& state, double seconds,
                                              const std::function<bool()>& should_stop) {
  std::unique_lock lock(mutex_);
  Heartbeat& beat = report_.beat;
  ++beat.request;
  beat.phase = Phase::kAsking;
  beat.run = state.history.run;
  beat.last_quorum = state.history.last_quorum;
  beat.outer_steps = state.outer_steps;
  beat.state_hash = state.hash;
  beat.has_finished = state.has_finished;
  quorum_.reset();
  say_at_once();
  const Timer timer;
  while (!quorum_ && refusal_.empty() && timer.seconds() < seconds && !should_stop()) {
    changed_.wait_for(lock, kWaitPause, [&] { return quorum_ || !refusal_.empty(); });
    note_progress();
  }
  if (!quorum_) beat.phase = Phase::kTraining;
  say_at_once();
  return quorum_;
}

Decision Membership::await_decision(bool is_ready, double seconds,
                                    const std::function<bool()>& should_stop) {
  std::unique_lock lock(mutex_);
  const bool is_contributor = quorum_ && !quorum_->member(options_.worker).donor;
  const auto vote = [&](Vote choice) {
    if (is_contributor) report_.vote = choice;
    say_at_once();
  };
  if (is_ready) vote(Vote::kFor);
  const double begin_s = timer_.seconds();
  std::optional<double> late_s;
  while (decision_ == Decision::kOpen) {
    const double now_s = timer_.seconds();
    if (!late_s && (now_s - begin_s > seconds || should_stop())) {
      late_s = now_s;
      vote(Vote::kAgainst);
    }
    // This process may have been stopped while it waited, or the lighthouse. Only a report that was
    // made too late, and for which one has waited in vain, shows that there is no answer.
    const bool is_heard = late_s && answered_s_ > *late_s;
    const bool is_in_vain = late_s && unanswered_s_ > *late_s + kLastAttempt;
    if (is_heard || is_in_vain) return Decision::kUnknown;
    changed_.wait_for(lock, kWaitPause, [&] { return decision_ != Decision::kOpen; });
  }
  return decision_;
}

bool Membership::is_aborted() {
  const std::lock_guard lock(mutex_);
  return decision_ == Decision::kAbort || decision_ == Decision::kUnknown;
}

std::string Membership::refusal() {
  const std::lock_guard lock(mutex_);
  return refusal_;
}

double Membership::join_timeout_s() {
  const std::lock_guard lock(mutex_);
  return join_timeout_s_;
}

void Membership::run() {
  LighthouseClient lighthouse(host_port(options_.lighthouse), keys_);
  std::unique_lock lock(mutex_);
  while (!has_ended_) {
    is_due_ = false;
    ++report_.number;
    report_.beat.progress = progress_;
    const Report report = report_;
    const double made_s = timer_.seconds();
    // An answer takes a moment. One that takes longer is lost, and the next report says it again.
    const double patience_s = std::clamp(2 * beat_seconds(join_timeout_s_), 0.25, 2.0);
    Answer answer;
    std::string fault;
    lock.unlock();
    try {
      answer = lighthouse.report(report, patience_s);
    } catch (const std::exception& error) {
      fault = error.what();
    }
    lock.lock();
    if (fault.empty()) {
      answered_s_ = made_s;
      note_answer(report, answer);
    } else {
      unanswered_s_ = made_s;
      if (!is_lost_) log_(concat("has lost the lighthouse, and tries again: ", fault));
      is_lost_ = true;
    }
    if (report.is_leaving || !refusal_.empty()) break;
    changed_.wait_for(lock, pause(), [&] { return is_due_ || has_ended_; });
  }
  has_ended_ = true;
  if (decision_ == Decision::kOpen) decision_ = Decision::kUnknown;  // nobody will hear of it
  changed_.notify_all();
}

void Membership::note_answer(const Report& report, const Answer& answer) {
  refusal_ = answer.refusal;
  join_timeout_s_ = answer.join_timeout_s;
  if (refusal_.empty() && options_.patience_s <= join_timeout_s_)
    refusal_ = concat("--patience is ", options_.patience_s, " s, it must be above the ",
                      join_timeout_s_, " s of the lighthouse's --join-timeout: a worker waits ",
                      "that long for one that still trains");
  report_.settings = answer.wants_settings ? settings_ : GroupSettings();
  if (answer.wants_settings) is_due_ = true;
  if (!answer.wait.empty() && wait_.empty()) log_("waits: " + answer.wait);
  wait_ = answer.wait;
  const bool is_heard = refusal_.empty() && wait_.empty() && !answer.wants_settings;
  if (is_heard && answer.lighthouse_epoch != lighthouse_epoch_) {
    log_(
        concat(lighthouse_epoch_ == 0 ? "joins" : "joins again, after a restart of the lighthouse:",
               " epoch ", answer.lighthouse_epoch));
    lighthouse_epoch_ = answer.lighthouse_epoch;
  }
  is_lost_ = false;
  if (report.round == report_.round && decision_ == Decision::kOpen) decision_ = answer.decision;
  Heartbeat& beat = report_.beat;
  if (answer.quorum && beat.phase == Phase::kAsking && report.beat.request == beat.request) {
    quorum_ = answer.quorum;
    beat.phase = quorum_->member(options_.worker).donor ? Phase::kHealing : Phase::kTraining;
    beat.run = quorum_->run;
    beat.last_quorum = report_.round = quorum_->number();
    beat.outer_steps = quorum_->outer_steps;
    report_.vote = Vote::kNone;
    decision_ = Decision::kOpen;
  }
  changed_.notify_all();
}

// Whoever waits for an answer asks more often.
std::chrono::duration<double> Membership::pause() const {
  const bool is_waiting = report_.beat.phase == Phase::kAsking || report_.vote != Vote::kNone;
  const bool is_in_round = report_.round != QuorumNumber{};
  const double beat_s = beat_seconds(join_timeout_s_);
  const double pause_s = is_waiting ? kAskPause : is_in_round ? kRoundPause : beat_s;
  return std::chrono::duration<double>(std::min(pause_s, beat_s));
}

}  // namespace ladder
