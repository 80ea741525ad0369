#include "step9_diloco/elastic/lighthouse.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/core/timer.hpp"
#include "step9_diloco/elastic/elastic_options.hpp"
#include "step9_diloco/elastic/quorum.hpp"

namespace ladder {
namespace {

// A member that was frozen still learns how its round ended, unless so many others were later.
constexpr std::size_t kMaxRounds = 64;

constexpr std::size_t kMaxRivals = 16;  // of strangers there may be more

constexpr double kLasting = 1;  // seconds: a reason that is gone by then is none to speak of

constexpr int kMaxAtOnce = 1000;  // reports that are answered before the next look at all workers

// The HOST of tcp://HOST:PORT.
std::string host_of(const std::string& address) {
  const std::string host = address.substr(address.rfind('/') + 1);
  return host.substr(0, host.rfind(':'));
}

// Why a worker with these settings does not fit to a group with those; empty: it does.
std::string difference(const GroupSettings& own, const GroupSettings& group) {
  if (group.empty()) return "";
  const auto value_in = [](const GroupSettings& settings, const std::string& name) {
    const auto found = settings.find(name);
    return found == settings.end() ? "nothing" : excerpt(found->second);
  };
  for (const GroupSettings* const settings : {&own, &group})
    for (const auto& [name, value] : *settings) {
      const std::string a = value_in(own, name), b = value_in(group, name);
      if (a != b)
        return concat("its ", excerpt(name), " is ", a, ", that of the others is ", b,
                      ": all workers of a group need the same. To change it for all, end all, and "
                      "start the lighthouse again");
    }
  return "";
}

// Since 1970: at most kMostId until 2255.
std::uint64_t now_us() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(since_1970).count());
}

}  // namespace

Lighthouse::Lighthouse(std::uint64_t epoch, bool is_public, const QuorumRules& rules, Log log,
                       std::function<double()> clock)
    : is_public_(is_public),
      rules_(rules),
      log_(std::move(log)),
      clock_(std::move(clock)),
      epoch_(epoch),
      watching_since_s_(clock_()),
      awake_since_s_(clock_()),
      last_look_s_(clock_()),
      counter_(epoch_) {}

std::string Lighthouse::answer_text(const std::string& text) {
  if (text == kStatusQuestion) return status();
  try {
    return to_text(answer(parse_report(text)));
  } catch (const OtherVersion& report) {
    return refusal_of_version(report, epoch_);
  }
}

Answer Lighthouse::answer(const Report& report) {
  Answer answer = {
      .number = report.number, .lighthouse_epoch = epoch_, .join_timeout_s = rules_.join_timeout_s};
  const Heartbeat& beat = report.beat;
  const auto last = workers_.find(beat.worker);
  const bool is_known = last != workers_.end() && last->second.report.beat.process == beat.process;
  if (is_known && report.number <= last->second.report.number) return answer;
  answer.refusal = refusal_of(report);
  if (!answer.refusal.empty() || (!is_known && !may_join(report, answer))) return answer;
  hear(report);
  answer.decision = decide(report);
  const auto found = workers_.find(beat.worker);
  if (found == workers_.end() || !found->second.quorum) return answer;  // it has just left
  const bool is_asked_for = beat.phase == Phase::kAsking &&
                            found->second.quorum->member(beat.worker).request == beat.request;
  if (is_asked_for) answer.quorum = found->second.quorum;
  return answer;
}

std::string Lighthouse::refusal_of(const Report& report) const {
  const Heartbeat& beat = report.beat;
  const bool is_local = is_loopback(host_of(beat.address));
  if (is_local && is_public_)
    return concat("it listens on ", beat.address, ", which no other machine reaches: in --elastic ",
                  "HOST:PORT, give HOST an address that this machine has in the network (in ",
                  "/etc/hosts, its own name may stand for a loopback address)");
  if (!is_local && !is_public_)
    return concat("it listens on ", beat.address, ", but the lighthouse is there for its own ",
                  "machine only: start it with --public, or give --elastic 127.0.0.1:PORT");
  if (!counter_.is_believable(beat.last_quorum))
    return concat("its state is of a quorum of ", beat.last_quorum.lighthouse_epoch,
                  " µs after 1970, more than a year after the lighthouse was started, at ", epoch_,
                  ": set the clock of the lighthouse's machine, and start the lighthouse again");
  if (may_take_over(beat)) return "";
  const std::uint64_t run = rules_.run != 0 ? rules_.run : new_run_;  // somebody may have begun it
  if (beat.run != 0 && run != 0 && beat.run != run)
    return concat("its state belongs to run ", id_text(beat.run), ", but the workers here train ",
                  "run ", id_text(run), ", and two runs never mix: start it with an empty ",
                  "--out, and it receives their state; or stop them and start the lighthouse ",
                  "again, to go on with its own");
  return report.settings.empty() ? "" : difference(report.settings, settings_);
}

// Before the first quorum, and with a newer state of a run than all others.
bool Lighthouse::may_take_over(const Heartbeat& beat) const {
  const auto newness = [this](const Heartbeat& one) {
    return Newness{counter_.in_order(one.last_quorum), one.outer_steps};
  };
  return !is_settled_ && beat.run != 0 && std::ranges::none_of(workers_, [&](const auto& entry) {
    const Heartbeat& other = entry.second.report.beat;
    return other.run != 0 && newness(other) >= newness(beat);
  });
}

// A process with a number that another one has waits: until the other one is lost, whose place it
// takes, or is heard again, whose place it does not get.
bool Lighthouse::may_join(const Report& report, Answer& answer) {
  const Heartbeat& beat = report.beat;
  if (report.is_leaving || left_.contains(beat.process)) return false;
  const auto found = workers_.find(beat.worker);
  const double now_s = clock_();
  const auto is_lost = [&](const Worker& other) {  // not if it was the lighthouse that was away
    return now_s - std::max(other.beat_s, awake_since_s_) > rules_.stale_s &&
           !was_away(now_s - last_look_s_);
  };
  if (found != workers_.end() && !is_lost(found->second)) {
    Worker& other = found->second;
    if (other.rivals.size() == kMaxRivals) other.rivals.clear();
    const double since_s = other.rivals.try_emplace(beat.process, now_s).first->second;
    (other.beat_s > since_s ? answer.refusal : answer.wait) =
        concat("another process is worker ", beat.worker, " (process ",
               id_text(other.report.beat.process), ", heard within the last ", rules_.stale_s,
               " s): give this one a --worker of its own, or end the other one first");
    return false;
  }
  answer.wants_settings = report.settings.empty();
  return !answer.wants_settings;
}

void Lighthouse::hear(const Report& report) {
  const Heartbeat& beat = report.beat;
  const auto [entry, is_new] = workers_.try_emplace(beat.worker);
  Worker& worker = entry->second;
  const Heartbeat last = worker.report.beat;
  const bool is_other_process = is_new || last.process != beat.process;
  worker.beat_s = clock_();
  if (is_other_process || last.progress != beat.progress) worker.progress_s = worker.beat_s;
  if (is_other_process || last.request != beat.request) worker.asked_s = worker.beat_s;
  if (is_other_process) {
    worker.quorum.reset();
    worker.rivals.clear();
    const bool has_other_settings = !difference(report.settings, settings_).empty();
    std::erase_if(workers_, [&](const auto& other) {  // nobody, unless this one takes over
      const std::uint64_t run = other.second.report.beat.run;
      const bool has_other_run = run != 0 && beat.run != 0 && run != beat.run;
      return other.first != beat.worker && (has_other_settings || has_other_run);
    });
    settings_ = report.settings;
    rules_.num_workers = report.num_workers;
    log_(concat("worker ", beat.worker, is_new ? " joins" : " is back", " at outer step ",
                beat.outer_steps, beat.run == 0 ? "" : concat(" of run ", id_text(beat.run))));
  }
  worker.report = report;
  worker.report.settings.clear();
  if (beat.run != 0) rules_.run = beat.run;
  counter_.hear(beat.last_quorum);
  if (!report.is_leaving) return;
  log_(concat("worker ", beat.worker, " leaves"));
  left_.insert(beat.process);
  workers_.erase(entry);
  if (workers_.empty()) forget_group();
}

void Lighthouse::forget_group() {
  settings_.clear();
  forget_run();
}

void Lighthouse::forget_run() {
  rules_.run = new_run_ = 0;
  is_settled_ = false;
}

// The only place where a round is decided by votes: commit or abort, once and for all.
Decision Lighthouse::decide(const Report& report) {
  Round* const round = find(report.round);
  if (round == nullptr) return Decision::kUnknown;
  const std::vector<Member> contributors = round->quorum.contributors();
  const bool may_vote = std::ranges::any_of(contributors, [&](const Member& member) {
    return member.worker == report.beat.worker && member.process == report.beat.process;
  });
  if (round->decision != Decision::kOpen || !may_vote) return round->decision;
  if (report.vote == Vote::kFor) round->voters.insert(report.beat.worker);
  if (round->voters.size() == contributors.size()) round->decision = Decision::kCommit;
  if (report.vote == Vote::kAgainst) round->decision = Decision::kAbort;
  return round->decision;
}

const Lighthouse::Round* Lighthouse::find(const QuorumNumber& number) const {
  const auto found =
      std::ranges::find(rounds_, number, [](const Round& round) { return round.quorum.number(); });
  return found == rounds_.end() ? nullptr : &*found;
}

Lighthouse::Round* Lighthouse::find(const QuorumNumber& number) {
  return const_cast<Round*>(std::as_const(*this).find(number));
}

std::vector<WorkerStatus> Lighthouse::look() const {
  std::vector<WorkerStatus> workers;
  const double now_s = clock_();
  for (const auto& [number, worker] : workers_)
    workers.push_back({.beat = known(worker),
                       .beat_age_s = now_s - worker.beat_s,
                       .progress_age_s = now_s - worker.progress_s,
                       .asking_s = now_s - worker.asked_s});
  return workers;
}

std::optional<Quorum> Lighthouse::form_quorum() {
  const double now_s = clock_(), pause_s = now_s - std::exchange(last_look_s_, now_s);
  const std::vector<WorkerStatus> workers = look();
  // Nobody is there, or, after a while in which this process was stopped, all heartbeats look old.
  // As after a start, the first to be heard must not go off alone.
  const bool is_anybody_there = std::ranges::any_of(
      workers, [&](const WorkerStatus& worker) { return !is_lost(worker, rules_); });
  if (was_away(pause_s)) awake_since_s_ = now_s;
  if (!is_anybody_there || was_away(pause_s)) watching_since_s_ = now_s;
  // Nobody is left who may have begun the run that was founded last.
  const bool are_all_lost = !is_anybody_there && now_s - awake_since_s_ > rules_.stale_s;
  if (are_all_lost && rules_.run == 0) forget_run();
  std::optional<Quorum> quorum = decide_quorum(workers, rules_, now_s - watching_since_s_);
  if (quorum) publish(*quorum);
  say_why(workers);
  return quorum;
}

// Once for each reason that lasts. Between two rounds nobody asks, which is none.
void Lighthouse::say_why(const std::vector<WorkerStatus>& workers) {
  const double now_s = clock_();
  bool is_training = false, is_asked = false;
  for (const WorkerStatus& seen : workers) {
    if (is_lost(seen, rules_) || is_hung(seen, rules_)) continue;
    is_training = true;
    is_asked |= seen.beat.phase == Phase::kAsking;
  }
  const bool is_calm = workers.empty() || (is_training && !is_asked);
  const std::string why = is_calm ? "" : why_no_quorum(workers, rules_, now_s - watching_since_s_);
  if (why != why_) {
    why_ = why;
    why_since_s_ = now_s;
    is_why_said_ = false;
  }
  if (is_why_said_ || why.empty() || now_s - why_since_s_ < kLasting) return;
  is_why_said_ = true;
  log_("no quorum: " + why);
}

// A member of a committed round that has not said so yet has its outer step, or is about to.
Heartbeat Lighthouse::known(const Worker& worker) const {
  Heartbeat beat = worker.report.beat;
  if (worker.quorum) {
    const Round* const round = find(worker.quorum->number());
    beat = as_known(beat, *worker.quorum, round != nullptr && round->decision == Decision::kCommit);
  }
  beat.last_quorum = counter_.in_order(beat.last_quorum);
  if (rules_.run != 0 &&
      beat.run != rules_.run) {  // it has a state of no run, from a former version's checkpoint
    beat.last_quorum = {};
    beat.outer_steps = 0;
  }
  return beat;
}

void Lighthouse::publish(Quorum& quorum) {
  // The new quorum's members have given the last round up, or are frozen: one that wakes must not
  // commit it behind the back of the new one's.
  if (!rounds_.empty() && rounds_.back().decision == Decision::kOpen)
    rounds_.back().decision = Decision::kAbort;
  if (rounds_.size() == kMaxRounds) rounds_.pop_front();
  is_settled_ = true;
  const QuorumNumber number = counter_.next();
  quorum.lighthouse_epoch = number.lighthouse_epoch;
  quorum.id = number.id;
  if (quorum.run == 0) {
    if (rules_.run != 0 || new_run_ == 0) {
      new_run_ = random_id();
      log_(concat("founds run ", id_text(new_run_)));
    }
    rules_.run = 0;
    quorum.run = new_run_;
  }
  rounds_.push_back({quorum});
  std::string names;
  for (const Member& member : quorum.members) {
    workers_.at(member.worker).quorum = quorum;
    names += concat(" ", member.worker);
    if (member.donor) names += concat(" (heals from ", *member.donor, ")");
  }
  log_(concat("quorum ", quorum.id, " at outer step ", quorum.outer_steps, ": workers", names));
}

std::string Lighthouse::status() const {
  const double now_s = clock_();
  const std::vector<WorkerStatus> workers = look();
  std::string text = concat("lighthouse of epoch ", epoch_, ", run ",
                            rules_.run == 0 ? "none yet" : id_text(rules_.run), ", --min-workers ",
                            rules_.min_workers, ", --join-timeout ", rules_.join_timeout_s, "\n");
  if (!rounds_.empty()) {
    const auto& [quorum, voters, decision] = rounds_.back();
    text += concat("last quorum ", quorum.id, " at outer step ", quorum.outer_steps, ", ",
                   decision == Decision::kOpen     ? "open"
                   : decision == Decision::kCommit ? "committed"
                                                   : "aborted",
                   "\n");
  }
  text += "worker  does        outer step   heard      step\n";
  for (const WorkerStatus& seen : workers) {
    const Heartbeat& beat = seen.beat;
    const char* const what = is_lost(seen, rules_)            ? "not heard"
                             : beat.phase == Phase::kAsking   ? "asks"
                             : is_hung(seen, rules_)          ? "hangs"
                             : beat.phase == Phase::kTraining ? "trains"
                                                              : "heals";
    char line[100];
    std::snprintf(line, sizeof line, "%6d  %-9s  %11lld  %5.1f s  %6.1f s ago\n", beat.worker, what,
                  static_cast<long long>(beat.outer_steps), seen.beat_age_s, seen.progress_age_s);
    text += line;
  }
  const std::string why = why_no_quorum(workers, rules_, now_s - watching_since_s_);
  return text + (why.empty() ? "" : concat("no quorum now: ", why, "\n"));
}

LighthouseServer::LighthouseServer(int port, bool is_public, const QuorumRules& rules, Log log,
                                   const std::optional<CurveKeys>& keys)
    : log_(log),
      listener_(context_, zmq::socket_type::router, is_public ? "0.0.0.0" : "127.0.0.1", port,
                kMaxReportBytes, keys, log),
      lighthouse_(now_us(), is_public, rules, log, [timer = Timer()] { return timer.seconds(); }) {
  log_(concat("epoch ", lighthouse_.epoch(), " listens on ",
              is_public ? "all addresses" : "127.0.0.1", ", port ", listener_.port()));
}

void LighthouseServer::serve(std::chrono::milliseconds patience) {
  if (listener_.wait(patience)) {
    for (int i = 0; i < kMaxAtOnce && listener_.wait(std::chrono::milliseconds(0)); ++i)
      answer_report();
  }
  lighthouse_.form_quorum();
}

// A message has two parts: where it comes from, which ZeroMQ has added, and the report.
void LighthouseServer::answer_report() {
  zmq::socket_t& socket = listener_.socket();
  std::vector<zmq::message_t> parts = receive_parts(socket);
  if (parts.empty()) return;
  try {
    check(parts.size() == 2, "a message of ", parts.size() - 1, " parts");
    const std::string answer = lighthouse_.answer_text(parts[1].to_string());
    socket.send(parts[0], zmq::send_flags::sndmore | zmq::send_flags::dontwait);
    socket.send(zmq::buffer(answer), zmq::send_flags::dontwait);
  } catch (const CheckError& error) {
    if (!std::exchange(has_warned_, true))
      log_(concat("ignores what is no report: ", error.what()));
  }
}

}  // namespace ladder
