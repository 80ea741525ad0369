#include "step9_diloco/elastic/elastic_averager.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/aminmax.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "common/core/byte_hash.hpp"
#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/stop_signal.hpp"
#include "step9_diloco/elastic/listener.hpp"
#include "step9_diloco/elastic/membership.hpp"
#include "step9_diloco/elastic/message.hpp"
#include "step9_diloco/elastic/messenger.hpp"

namespace ladder {
namespace {

constexpr int kFewFailures = 3;  // in a row: see check_progress()

bool is_finite(const at::Tensor& values) {
  if (values.numel() == 0) return true;
  const auto [least, most] = at::aminmax(values);  // not a number if one value is none
  return std::isfinite(least.item<double>()) && std::isfinite(most.item<double>());
}

void check_finite(const NamedTensor& named, int worker) {
  check(is_finite(named.tensor), "worker ", worker, ": a value of its ", named.name,
        " is not finite: its training has diverged, so it leaves the others. Start it again: ",
        "it receives their state. If that repeats, try a lower --lr");
}

std::optional<CurveKeys> keys_of(const ElasticOptions& options) {
  if (options.key_file.empty()) return {};
  return read_curve_keys(options.key_file);
}

std::string tensors_hash(const WorkerState& state) {
  ByteHash hash;
  for (const auto* list : {&state.shared, &state.own})
    for (const NamedTensor& named : *list) {
      const std::string text =
          concat(named.name, " ", named.tensor.sizes(), " ", named.tensor.scalar_type(), ";");
      hash.update(text.data(), text.size());
    }
  return hash.digest();
}

std::int64_t values_bytes(const WorkerState& state) {
  // The global copy: no fragment is larger. Of a few values, each slice may be as long as all.
  std::size_t most = 4096;
  for (const NamedTensor& named : state.shared) most = std::max(most, named.tensor.nbytes());
  return static_cast<std::int64_t>(most);
}

}  // namespace

// What connects it to its group: the lighthouse, and the other workers.
struct GroupLinks {
  // Reports to the lighthouse from here on.
  GroupLinks(const ElasticOptions& options, const WorkerState& state, const History& history,
             const GroupSettings& settings, const Log& log)
      : keys(keys_of(options)),
        mailbox(values_bytes(state), snapshot_bytes(state)),
        messenger(
            keys, own_host(host_port(options.lighthouse)),
            [this](const Message& message) { mailbox.deliver(message); }, log),
        donor(options.worker, messenger),
        membership(options, keys, {history, state.outer_steps(), messenger.address(), settings},
                   log) {}

  std::optional<CurveKeys> keys;
  Mailbox mailbox;
  Messenger messenger;
  Donor donor;
  Membership membership;
};

ElasticAverager::ElasticAverager(const ElasticOptions& options, Log log, Log log_routine)
    : options_(options), log_(std::move(log)), log_routine_(std::move(log_routine)) {}

ElasticAverager::~ElasticAverager() {
  if (round_.valid()) {
    abandon_round();
    round_.wait();
  }
  if (links_) links_->membership.leave();
}

void ElasticAverager::join(const WorkerState& state, GroupSettings settings) {
  state_ = state;
  settings["state, as a hash of its tensors' names and sizes,"] = tensors_hash(state);
  links_ = std::make_unique<GroupLinks>(options_, state_, history_, settings, log_);
  since_commit_.restart();
}

void ElasticAverager::note_step() {
  links_->membership.note_progress();
  const bool is_newcomer = counts_.num_commits + counts_.num_heals == 0;
  if (!is_newcomer) return;  // what it has learned is worth saving: see form_quorum()
  const std::string refusal = links_->membership.refusal();
  check(refusal.empty(), "worker ", options_.worker, " is refused: ", refusal);
}

bool ElasticAverager::form_quorum() {
  check(links_ != nullptr, "join() comes before the first round");
  check(!round_.valid(), "one average is in flight at a time");
  for (const NamedTensor& named : state_.own) check_finite(named, options_.worker);
  const Timer timer;
  has_given_up_ = false;
  while (true) {
    if (!ask(/*has_finished=*/false, options_.patience_s - timer.seconds())) {
      note_step();
      const std::string refusal = links_->membership.refusal();
      give_up(refusal.empty() ? concat("after ", options_.patience_s, " s without a quorum ",
                                       "(--patience): ./ladder lighthouse --ask ",
                                       options_.lighthouse, " says why there is none")
                              : concat("because it is refused: ", refusal));
      break;
    }
    if (quorum_.member(options_.worker).donor && !heal_from_donor()) continue;
    history_ = {quorum_.run, quorum_.number()};
    break;
  }
  return !has_given_up_ && has_enough_contributors();
}

// All members see the same ones, so all agree.
bool ElasticAverager::has_enough_contributors() {
  if (quorum_.is_enough) return true;
  log_(concat("averages nothing in quorum ", quorum_.id,
              ", and trains on: ", quorum_.contributors().size(),
              " would contribute, fewer than the lighthouse's ", "--min-workers"));
  check_progress(/*is_committed=*/false);
  return false;
}

bool ElasticAverager::heal_from_donor() {
  const auto goes_on = [this] {
    note_step();
    return !StopSignal::was_raised();
  };
  const bool is_healed = heal(quorum_, options_.worker, state_, links_->mailbox,
                              options_.round_timeout_s, goes_on, log_);
  counts_.num_heals += is_healed ? 1 : 0;
  links_->membership.train();
  return is_healed;
}

// The loop then saves what there is, and stops.
void ElasticAverager::give_up(const std::string& reason) {
  quorum_ = {};
  has_given_up_ = true;
  if (StopSignal::was_raised()) {
    log_("waits no longer: it is asked to stop");
    return;
  }
  log_(concat("gives up ", reason));
  StopSignal::raise();
}

// Takes part in the next quorum, and gives a snapshot to those that heal from this worker. False if
// there is none in time, or the run is asked to stop.
bool ElasticAverager::ask(bool has_finished, double seconds) {
  const std::optional<Quorum> quorum = links_->membership.form_quorum(
      {history_, state_.outer_steps(), shared_hash(state_), has_finished}, seconds,
      StopSignal::was_raised);
  if (!quorum) return false;
  quorum_ = *quorum;
  if (has_finished) {
    links_->membership.end_round(/*is_taken=*/false);
    const bool is_healthy = !quorum_.member(options_.worker).donor;
    if (is_healthy) history_ = {quorum_.run, quorum_.number()};  // or it would seem to need healing
  }
  links_->mailbox.begin(quorum_);
  links_->donor.forget(quorum_, options_.round_timeout_s);
  links_->messenger.keep_only(quorum_.number(), links_->donor.quorums());
  if (quorum_.receivers(options_.worker).empty()) return true;
  log_(concat("gives its state at outer step ", quorum_.outer_steps, " to others, in quorum ",
              quorum_.id));
  links_->donor.give(quorum_, take_snapshot(state_));
  return true;
}

void ElasticAverager::start(at::Tensor values) {
  check(!quorum_.members.empty(), "a quorum comes before an average");
  check_finite({"pseudogradient", values}, options_.worker);
  is_abandoned_ = false;
  round_ = std::async(std::launch::async,
                      [this, values = std::move(values)] { return run_round(values); });
}

// Runs in a thread of its own.
bool ElasticAverager::run_round(const at::Tensor& values) {
  const at::NoGradGuard no_grad;
  const MemoryScope scope(MemoryCategory::kCommunication, "elastic average");
  const Timer timer;
  const int self = options_.worker;
  const std::vector<Member> contributors = quorum_.contributors();
  bool is_ready = false;
  try {
    const Missing missing = sum_over_contributors(values, quorum_, self, links_->messenger,
                                                  links_->mailbox, options_.round_timeout_s);
    if (!StopSignal::was_raised()) say_missing(missing);  // it has not waited
    check(!missing.is_empty() || is_finite(values), "its sum is not finite");
    if (missing.is_empty()) values.div_(static_cast<double>(contributors.size()));
    is_ready = missing.is_empty();
    const bool is_listener = quorum_.member(self).donor.has_value();
    if (is_ready)
      log_routine_(concat(is_listener ? "hears" : "has", " the average of quorum ", quorum_.id));
  } catch (const std::exception& error) {
    log_(concat("votes against quorum ", quorum_.id, ": ", error.what()));
  }
  const double left_s = is_ready ? options_.round_timeout_s - timer.seconds() : 0;
  const Decision decision =
      links_->membership.await_decision(is_ready, left_s, [this] { return is_abandoned_.load(); });
  const char* const outcome = decision == Decision::kCommit  ? " is committed: outer step "
                              : decision == Decision::kAbort ? " is aborted: outer step "
                                                             : " is gone, undecided: outer step ";
  const std::string what = concat("quorum ", quorum_.id, outcome, quorum_.outer_steps, " of ",
                                  contributors.size(), " workers");
  const bool is_routine = decision == Decision::kCommit && contributors.size() == num_contributors_;
  num_contributors_ = contributors.size();
  (is_routine ? log_routine_ : log_)(what);
  const bool is_taken = decision == Decision::kCommit && is_ready;
  links_->membership.end_round(is_taken);
  return is_taken;
}

void ElasticAverager::say_missing(const Missing& missing) {
  for (const int worker : missing.values)
    log_(concat("has not received the values of worker ", worker, " in quorum ", quorum_.id));
  for (const int worker : missing.sums)
    log_(concat("has not received the sum of worker ", worker, " in quorum ", quorum_.id));
}

// A round that fails now and then is nothing, not even if it is longer than --patience.
void ElasticAverager::check_progress(bool is_committed) {
  ++(is_committed ? counts_.num_commits : counts_.num_failures);
  num_failures_in_a_row_ = is_committed ? 0 : num_failures_in_a_row_ + 1;
  if (is_committed) since_commit_.restart();
  const bool has_waited =
      num_failures_in_a_row_ > kFewFailures && since_commit_.seconds() > options_.patience_s;
  if (has_waited || (!is_committed && StopSignal::was_raised()))
    give_up(concat("after ", options_.patience_s,
                   " s without a committed round (--patience): what ", "is missing is said above"));
}

// It ends as fast as it can: a vote against it, unless all have voted for it.
void ElasticAverager::abandon_round() {
  is_abandoned_ = true;
  links_->mailbox.stop_waiting();
}

std::optional<int> ElasticAverager::finish() {
  while (round_.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) {
    note_step();
    if (StopSignal::was_raised() || links_->membership.is_aborted()) abandon_round();
  }
  const bool is_committed = round_.get();
  counts_.num_bytes_sent = links_->messenger.num_bytes_sent();
  check_progress(is_committed);
  if (!is_committed) return {};
  return static_cast<int>(quorum_.contributors().size());
}

void ElasticAverager::end() {
  if (!links_) return;
  try {
    if (!StopSignal::was_raised()) help_those_behind();
  } catch (const CheckError& error) {
    log_(concat("leaves without a last quorum: ", error.what()));
  }
  links_->membership.leave();
  log_("has left");
  const bool is_untrained = counts_.num_commits + counts_.num_heals == 0;
  if (!is_untrained) return;
  const std::string text =
      "ends without one committed round: its global parameters are those it started with";
  check(counts_.num_failures == 0 || StopSignal::was_raised(), "worker ", options_.worker, " ",
        text);
  log_(text);
}

// Others may go on for long: this worker is ready to leave as soon as nobody needs it.
void ElasticAverager::help_those_behind() {
  const auto heals = [](const Member& member) { return member.donor.has_value(); };
  const auto is_ahead = [&] { return quorum_.outer_steps > state_.outer_steps(); };
  const double known_s = links_->membership.join_timeout_s();
  const double join_timeout_s = known_s > 0 ? known_s : options_.round_timeout_s;
  do {
    if (!ask(/*has_finished=*/true, 2 * join_timeout_s)) break;
  } while (!is_ahead() && std::ranges::any_of(quorum_.members, heals));
  const Timer timer;  // one that heals from this worker may be in the middle of it
  while (links_->donor.is_giving(/*seconds=*/2) && timer.seconds() < options_.round_timeout_s &&
         !StopSignal::was_raised())
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

}  // namespace ladder
