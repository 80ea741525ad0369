#include "step9_diloco/elastic/lighthouse.hpp"

#include <algorithm>
#include <utility>

#include "common/core/check.hpp"
#include "common/core/timer.hpp"
#include "step9_diloco/elastic/elastic_options.hpp"
#include "step9_diloco/elastic/quorum.hpp"

namespace ladder {
namespace {

// A member that was frozen still learns how its round ended, unless so many others were later.
constexpr std::size_t kMaxRounds = 64;

constexpr int kMaxAtOnce = 1000;  // reports that are answered before the next look at all workers

// Since 1970. Checkpoints hold it as a count of at most 2^53: that is enough until 2255.
std::uint64_t now_us() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(since_1970).count());
}

}  // namespace

Lighthouse::Lighthouse(std::uint64_t epoch, bool is_public, Log log, std::function<double()> clock)
    : is_public_(is_public),
      log_(std::move(log)),
      clock_(std::move(clock)),
      epoch_(epoch),
      watching_since_s_(clock_()),
      last_look_s_(clock_()),
      counter_(epoch_) {}

Answer Lighthouse::answer(const Report& report) {
  Answer answer = {.number = report.number, .lighthouse_epoch = epoch_};
  answer.refusal = refusal_of(report);
  if (!answer.refusal.empty() || is_outdated(report)) return answer;
  hear(report);
  answer.decision = decide(report);
  const auto found = workers_.find(report.beat.worker);
  if (found == workers_.end() || !found->second.quorum) return answer;  // it has just left
  const bool is_asked_for =
      report.beat.phase == Phase::kAsking &&
      found->second.quorum->member(report.beat.worker).request == report.beat.request;
  if (is_asked_for) answer.quorum = found->second.quorum;
  return answer;
}

std::string Lighthouse::refusal_of(const Report& report) const {
  const std::string& address = report.beat.address;
  const bool is_local = is_loopback(address.substr(address.rfind('/') + 1));
  if (past_epochs_.contains({report.beat.worker, report.beat.epoch}))
    return "another process has taken its place: each needs a --worker of its own";
  if (!fingerprint_.empty() && report.fingerprint != fingerprint_)
    return concat("its model or options are ", report.fingerprint, ", those of the group are ",
                  fingerprint_, "; give it the same, or another group a lighthouse of its own");
  if (is_local && is_public_)
    return concat("it listens on ", address, ", which no other machine reaches: in --elastic ",
                  "HOST:PORT, give HOST an address that this machine has in the network (in ",
                  "/etc/hosts, its own name may stand for a loopback address)");
  if (!is_local && !is_public_)
    return concat("it listens on ", address, ", but the lighthouse is there for its own machine ",
                  "only: start it with --public, or give --elastic 127.0.0.1:PORT");
  return "";
}

// A lower epoch belongs to a process that was started after the last one died, on a clock that has
// gone back; or to one of two that both live, of which the later one stays.
bool Lighthouse::is_outdated(const Report& report) {
  const auto found = workers_.find(report.beat.worker);
  if (found == workers_.end()) return false;
  Worker& last = found->second;
  const std::uint64_t epoch = report.beat.epoch, last_epoch = last.report.beat.epoch;
  if (epoch == last_epoch) {
    if (last.rival) past_epochs_.insert({report.beat.worker, *std::exchange(last.rival, {})});
    return report.number <= last.report.number;
  }
  if (epoch > last_epoch || clock_() - last.beat_s > report.rules.stale_s) return false;
  last.rival = epoch;
  return true;
}

void Lighthouse::hear(const Report& report) {
  fingerprint_ = report.fingerprint;
  const Heartbeat& beat = report.beat;
  const auto [entry, is_new] = workers_.try_emplace(beat.worker);
  Worker& worker = entry->second;
  const Heartbeat last = worker.report.beat;
  const bool is_other_epoch = is_new || last.epoch != beat.epoch;
  worker.beat_s = clock_();
  if (is_other_epoch || last.progress != beat.progress) worker.progress_s = worker.beat_s;
  if (is_other_epoch || last.request != beat.request) worker.asked_s = worker.beat_s;
  if (is_other_epoch) {
    if (!is_new) past_epochs_.insert({beat.worker, last.epoch});
    worker.quorum.reset();
    worker.rival.reset();
    log_(concat("worker ", beat.worker, is_new ? " joins" : " is back", " at outer step ",
                beat.outer_steps));
  }
  worker.report = report;
  counter_.hear(beat.last_quorum);
  if (!report.is_leaving) return;
  log_(concat("worker ", beat.worker, " leaves"));
  past_epochs_.insert({beat.worker, beat.epoch});
  workers_.erase(entry);
}

// The only place where a round is decided by votes: commit or abort, once and for all.
Decision Lighthouse::decide(const Report& report) {
  Round* const round = find(report.round);
  if (round == nullptr) return Decision::kUnknown;
  const std::vector<Member> contributors = round->quorum.contributors();
  const bool may_vote = std::ranges::any_of(contributors, [&](const Member& member) {
    return member.worker == report.beat.worker && member.epoch == report.beat.epoch;
  });
  if (round->decision != Decision::kOpen || !may_vote) return round->decision;
  if (report.vote == Vote::kFor) round->voters.insert(report.beat.worker);
  if (round->voters.size() == contributors.size()) round->decision = Decision::kCommit;
  if (report.vote == Vote::kAgainst) round->decision = Decision::kAbort;
  return round->decision;
}

Lighthouse::Round* Lighthouse::find(const QuorumNumber& number) {
  const auto found =
      std::ranges::find(rounds_, number, [](const Round& round) { return round.quorum.number(); });
  return found == rounds_.end() ? nullptr : &*found;
}

std::optional<Quorum> Lighthouse::form_quorum() {
  const double now_s = clock_(), pause_s = now_s - std::exchange(last_look_s_, now_s);
  std::vector<WorkerStatus> workers;
  QuorumRules rules;
  for (const auto& [number, worker] : workers_) {
    workers.push_back({.beat = known(worker),
                       .beat_age_s = now_s - worker.beat_s,
                       .progress_age_s = now_s - worker.progress_s,
                       .asking_s = now_s - worker.asked_s});
    rules = worker.report.rules;
  }
  // Nobody is there, or, after a while in which this process was stopped, all heartbeats look old.
  // As after a start, the first to be heard must not go off alone.
  const bool is_anybody_there = std::ranges::any_of(
      workers, [&](const WorkerStatus& worker) { return !is_lost(worker, rules); });
  if (!is_anybody_there || pause_s > rules.stale_s / 2) watching_since_s_ = now_s;
  leave_out_unreachable(workers, rules);
  std::optional<Quorum> quorum =
      decide_quorum(std::move(workers), rules, now_s - watching_since_s_);
  if (quorum) publish(*quorum);
  return quorum;
}

// A member of a committed round that has not said so yet has its outer step, or is about to.
Heartbeat Lighthouse::known(const Worker& worker) {
  Heartbeat beat = worker.report.beat;
  if (worker.quorum) {
    const Round* const round = find(worker.quorum->number());
    beat = as_known(beat, *worker.quorum, round != nullptr && round->decision == Decision::kCommit);
  }
  beat.last_quorum = counter_.in_order(beat.last_quorum);
  return beat;
}

void Lighthouse::leave_out_unreachable(std::vector<WorkerStatus>& workers,
                                       const QuorumRules& rules) {
  const std::set<int> unreachable = unreachable_workers(workers, rules);
  for (const int worker : unreachable)
    if (!left_out_.contains(worker))
      log_(concat("leaves out worker ", worker, ": its data does not reach others, or theirs not ",
                  "it; is there a firewall between them, or an --elastic-key of another run?"));
  left_out_ = unreachable;
  std::erase_if(workers, [&](const WorkerStatus& worker) {
    return unreachable.contains(worker.beat.worker);
  });
}

void Lighthouse::publish(Quorum& quorum) {
  // Its members have given the last round up, or are frozen: one that wakes must not commit it
  // behind the back of the new one's.
  if (!rounds_.empty() && rounds_.back().decision == Decision::kOpen)
    rounds_.back().decision = Decision::kAbort;
  if (rounds_.size() == kMaxRounds) rounds_.pop_front();
  const QuorumNumber number = counter_.next();
  quorum.lighthouse_epoch = number.lighthouse_epoch;
  quorum.id = number.id;
  rounds_.push_back({quorum});
  std::string names;
  for (const Member& member : quorum.members) {
    workers_.at(member.worker).quorum = quorum;
    names += concat(" ", member.worker);
    if (member.donor) names += concat(" (heals from ", *member.donor, ")");
  }
  log_(concat("quorum ", quorum.id, " at outer step ", quorum.outer_steps, ": workers", names));
}

LighthouseServer::LighthouseServer(int port, bool is_public, Log log,
                                   const std::optional<CurveKeys>& keys)
    : log_(log),
      listener_(context_, zmq::socket_type::router, is_public ? "0.0.0.0" : "127.0.0.1", port,
                kMaxReportBytes, keys, log),
      lighthouse_(now_us(), is_public, log, [timer = Timer()] { return timer.seconds(); }) {
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
    const std::string answer = to_text(lighthouse_.answer(parse_report(parts[1].to_string())));
    socket.send(parts[0], zmq::send_flags::sndmore | zmq::send_flags::dontwait);
    socket.send(zmq::buffer(answer), zmq::send_flags::dontwait);
  } catch (const CheckError& error) {
    if (!std::exchange(has_warned_, true))
      log_(concat("ignores what is no report: ", error.what()));
  }
}

}  // namespace ladder
