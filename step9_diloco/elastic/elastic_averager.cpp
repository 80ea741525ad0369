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
#include "common/core/timer.hpp"
#include "common/train/stop_signal.hpp"
#include "step9_diloco/elastic/exchange.hpp"

namespace ladder {
namespace {

std::optional<CurveKeys> keys_of(const ElasticOptions& options) {
  if (options.key_file.empty()) return {};
  return read_curve_keys(options.key_file);
}

// Ten heartbeats may be late or lost before a worker counts as lost.
MembershipOptions membership_options(const ElasticOptions& options, std::int64_t outer_steps,
                                     const std::string& address, const std::string& fingerprint) {
  const double shortest_s = std::min(options.join_timeout_s, options.round_timeout_s);
  const double beat_s = std::clamp(shortest_s / 20, 0.01, 1.0);
  return {.worker = options.worker,
          .outer_steps = outer_steps,
          .address = address,
          .fingerprint = fingerprint,
          .rules = {.num_workers = options.num_workers,
                    .min_workers = options.min_workers,
                    .stale_s = 10 * beat_s,
                    .join_timeout_s = options.join_timeout_s},
          .beat_s = beat_s};
}

std::string fingerprint_of(const ElasticOptions& options, const WorkerState& state,
                           const std::string& description) {
  ByteHash hash;
  for (const auto* list : {&state.shared, &state.own})
    for (const NamedTensor& named : *list) {
      const std::string text =
          concat(named.name, " ", named.tensor.sizes(), " ", named.tensor.scalar_type(), ";");
      hash.update(text.data(), text.size());
    }
  return concat("'", description, "' (tensors ", hash.digest().substr(0, 8), "), --workers ",
                options.num_workers, ", --min-workers ", options.min_workers, ", --join-timeout ",
                options.join_timeout_s, ", --round-timeout ", options.round_timeout_s, ", --merge ",
                options.merge == Merge::kEqual ? "equal" : "tokens");
}

std::int64_t values_bytes(const WorkerState& state) {
  std::size_t most = 0;  // the global copy: no fragment is larger
  for (const NamedTensor& named : state.shared) most = std::max(most, named.tensor.nbytes());
  return static_cast<std::int64_t>(most);
}

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

}  // namespace

struct ElasticAverager::Group {
  Group(const ElasticOptions& options, const WorkerState& state, const std::string& description,
        const Log& log)
      : lighthouse(host_port(options.lighthouse)),
        keys(keys_of(options)),
        store(lighthouse, std::clamp(options.round_timeout_s / 2, 0.5, 5.0), Seal(keys), log),
        mailbox(values_bytes(state), snapshot_bytes(state)),
        server(options.worker),
        messenger(
            keys, own_host(lighthouse.host, lighthouse.port),
            [this](const Message& message) { receive(message); }, log),
        membership(membership_options(options, state.outer_steps(), messenger.address(),
                                      fingerprint_of(options, state, description)),
                   store, log) {}

  void receive(const Message& message) {
    if (message.kind == MessageKind::kRequest) {
      server.answer(message, messenger);
    } else {
      mailbox.deliver(message);
    }
  }

  HostPort lighthouse;
  std::optional<CurveKeys> keys;
  Store store;
  Mailbox mailbox;
  SnapshotServer server;
  Messenger messenger;
  Membership membership;
};

ElasticAverager::ElasticAverager(const ElasticOptions& options, Log log)
    : options_(options), log_(std::move(log)) {
  check_elastic(options);
}

ElasticAverager::~ElasticAverager() {
  if (round_.valid()) round_.wait();  // its deadlines end it
  if (group_) group_->membership.leave();
}

void ElasticAverager::join(const WorkerState& state, const std::string& description) {
  state_ = state;
  group_ = std::make_unique<Group>(options_, state_, description, log_);
  since_commit_.restart();
}

void ElasticAverager::note_step(double num_tokens) {
  num_tokens_ += num_tokens;
  note_progress();
}

void ElasticAverager::note_progress() {
  group_->membership.note_progress();
}

void ElasticAverager::form_quorum() {
  check(group_ != nullptr, "join() comes before the first round");
  check(!round_.valid(), "one average is in flight at a time");
  for (const NamedTensor& named : state_.own) check_finite(named, options_.worker);
  const Timer timer;
  while (true) {
    if (!ask(/*has_finished=*/false, options_.patience_s - timer.seconds())) {
      give_up(concat("without a quorum (--patience): are the lighthouse and --min-workers ",
                     options_.min_workers, " workers running, and does data travel between them?"));
      break;
    }
    if (!quorum_.member(options_.worker).donor || heal_from_donor()) break;
  }
  counts_.waiting_s += timer.seconds();
}

bool ElasticAverager::heal_from_donor() {
  group_->membership.heal();
  const bool is_healed = heal(
      quorum_, options_.worker, state_, group_->messenger, group_->mailbox,
      options_.round_timeout_s, [this] { note_progress(); }, log_);
  if (is_healed) {
    ++counts_.num_heals;
    group_->membership.note_state(quorum_, state_.outer_steps());
  }
  group_->membership.train();
  return is_healed;
}

// The round fails; the loop then saves what there is, and stops.
void ElasticAverager::give_up(const std::string& reason) {
  quorum_ = {};
  if (StopSignal::was_raised()) {
    log_("waits for no quorum any more: it is asked to stop");
    return;
  }
  log_(concat("gives up after ", options_.patience_s, " s ", reason));
  StopSignal::raise();
}

// Takes part in the next quorum, and gives a snapshot to those that heal from this worker. False if
// there is none in time, or the run is asked to stop.
bool ElasticAverager::ask(bool has_finished, double seconds) {
  const bool is_by_tokens = options_.merge == Merge::kTokens && !has_finished;
  const std::optional<Quorum> quorum = group_->membership.form_quorum(
      {state_.outer_steps(), shared_hash(state_), is_by_tokens ? std::max(num_tokens_, 1.0) : 1,
       has_finished, missed_.epochs()},
      seconds, StopSignal::was_raised);
  if (!quorum) return false;
  quorum_ = *quorum;
  group_->mailbox.begin(quorum_);
  group_->server.forget(quorum_, options_.round_timeout_s);
  group_->messenger.keep_only({quorum_.lighthouse_epoch, quorum_.id}, group_->server.quorums());
  if (quorum_.receivers(options_.worker).empty()) return true;
  log_(concat("gives its state at outer step ", quorum_.outer_steps, " to others, in quorum ",
              quorum_.id));
  group_->server.serve(quorum_, take_snapshot(state_), group_->messenger);
  return true;
}

void ElasticAverager::start(at::Tensor values) {
  num_tokens_ = 0;
  if (quorum_.members.empty()) return;  // it has given up: finish() says so
  check_finite({"pseudogradient", values}, options_.worker);
  round_ = std::async(std::launch::async,
                      [this, values = std::move(values)] { return run_round(values); });
}

// In a thread of its own.
bool ElasticAverager::run_round(const at::Tensor& values) {
  const at::NoGradGuard no_grad;
  const MemoryScope scope(MemoryCategory::kCommunication, "elastic average");
  const Timer timer;
  const int self = options_.worker;
  const bool is_by_tokens = options_.merge == Merge::kTokens;
  const std::vector<Member> contributors = quorum_.contributors();
  if (contributors.empty()) return false;  // all the others have finished: there is nothing to do
  bool is_ready = false;
  try {
    double sum_of_weights = 0;
    for (const Member& member : contributors) sum_of_weights += member.weight;
    if (is_by_tokens) values.mul_(quorum_.member(self).weight / sum_of_weights);
    const Missing missing = sum_over_contributors(values, quorum_, self, group_->messenger,
                                                  group_->mailbox, options_.round_timeout_s);
    note_missing(missing);
    check(!missing.is_empty() || is_finite(values), "its sum is not finite");
    if (missing.is_empty() && !is_by_tokens) values.div_(static_cast<double>(contributors.size()));
    is_ready = missing.is_empty();
    const bool is_listener = quorum_.member(self).donor.has_value();
    if (is_ready)
      log_.routine(concat(is_listener ? "hears" : "has", " the average of quorum ", quorum_.id));
  } catch (const std::exception& error) {
    log_(concat("votes against quorum ", quorum_.id, ": ", error.what()));
  }
  const double left_s = is_ready ? options_.round_timeout_s - timer.seconds() : 0;
  const Decision decision = await_decision(group_->store, quorum_, self, is_ready, left_s);
  const char* const outcome = decision == Decision::kCommit  ? " is committed: outer step "
                              : decision == Decision::kAbort ? " is aborted: outer step "
                                                             : " is gone, undecided: outer step ";
  const std::string what = concat("quorum ", quorum_.id, outcome, quorum_.outer_steps, " of ",
                                  contributors.size(), " workers");
  const bool is_routine = decision == Decision::kCommit && contributors.size() == num_contributors_;
  num_contributors_ = contributors.size();
  is_routine ? log_.routine(what) : log_(what);
  const bool is_taken = decision == Decision::kCommit && is_ready;
  if (is_taken) group_->membership.note_state(quorum_, quorum_.outer_steps + 1);
  return is_taken;
}

void ElasticAverager::note_missing(const Missing& missing) {
  const bool is_listener = quorum_.member(options_.worker).donor.has_value();
  if (!is_listener) missed_.note(quorum_, missing.values);
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
  if (num_failures_in_a_row_ > kMaxMissedRounds && since_commit_.seconds() > options_.patience_s)
    give_up("without a committed round (--patience): what is missing is said above");
}

std::optional<int> ElasticAverager::finish() {
  const Timer timer;
  bool is_committed = false;
  if (round_.valid()) {
    while (round_.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready)
      note_progress();
    is_committed = round_.get();
  }
  counts_.num_bytes_sent = group_->messenger.num_bytes_sent();
  counts_.waiting_s += timer.seconds();
  check_progress(is_committed);
  if (!is_committed) return {};
  return static_cast<int>(quorum_.contributors().size());
}

void ElasticAverager::end() {
  if (!group_) return;
  try {
    if (!StopSignal::was_raised()) help_those_behind();
  } catch (const CheckError& error) {
    log_(concat("leaves without a last quorum: ", error.what()));
  }
  group_->membership.leave();
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
  do {
    if (!ask(/*has_finished=*/true, 2 * options_.join_timeout_s)) break;
  } while (!is_ahead() && std::ranges::any_of(quorum_.members, heals));
  const Timer timer;  // one that heals from this worker may be in the middle of it
  while (group_->server.is_serving(0.3) && timer.seconds() < options_.round_timeout_s)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

}  // namespace ladder
