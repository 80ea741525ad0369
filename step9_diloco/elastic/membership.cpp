#include "step9_diloco/elastic/membership.hpp"

#include <chrono>
#include <random>
#include <utility>

#include "common/core/check.hpp"
#include "common/core/timer.hpp"

namespace ladder {
namespace {

constexpr std::chrono::milliseconds kAskPause(3);  // between two polls for an assignment

// The time, and some random bits for two that start at once.
std::uint64_t new_epoch() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  const auto time_us = std::chrono::duration_cast<std::chrono::microseconds>(since_1970).count();
  return static_cast<std::uint64_t>(time_us) << 12 | std::random_device()() % 4096;
}

// Why other workers could not send to this address, tcp://HOST:PORT; empty if they can.
std::string unreachable(const std::string& address, const LighthouseRecord& lighthouse) {
  const bool is_local = is_loopback(address.substr(address.rfind('/') + 1));
  if (is_local != lighthouse.is_public) return {};
  return concat("it listens on ", address,
                is_local ? ", which no other machine reaches: in --elastic HOST:PORT, give HOST an "
                           "address that this machine has in the network (in /etc/hosts, its own "
                           "name may stand for a loopback address)"
                         : ", but the lighthouse is there for its own machine only: start it with "
                           "--public, or give --elastic 127.0.0.1:PORT");
}

}  // namespace

// Of an earlier one, somebody may have put it back.
bool Membership::is_of_later_epoch(const std::string& text) const {
  try {
    return parse_beat(text).beat.epoch > epoch_;
  } catch (const CheckError&) {
    return false;  // no heartbeat at all: it is overwritten
  }
}

Membership::Membership(const MembershipOptions& options, Store& store, Log log)
    : options_(options), store_(store), log_(std::move(log)), epoch_(new_epoch()) {
  beat_.worker = options.worker;
  beat_.epoch = epoch_;
  beat_.last_quorum = options.newness.last_quorum;
  beat_.outer_steps = options.newness.outer_steps;
  beat_.address = options.address;
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
  is_leaving_ = is_due_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, std::chrono::seconds(1), [&] { return has_ended_; });
}

void Membership::change(const std::function<void()>& change_beat) {
  const std::lock_guard lock(mutex_);
  change_beat();
  is_due_ = true;
  changed_.notify_all();
}

void Membership::train() {
  change([&] { beat_.phase = Phase::kTraining; });
}

void Membership::end_round(bool is_taken) {
  change([&] {
    beat_.last_ended = beat_.request;
    beat_.outer_steps += is_taken ? 1 : 0;
  });
}

std::optional<Quorum> Membership::form_quorum(const State& state, double seconds,
                                              const std::function<bool()>& should_stop) {
  std::int64_t request = 0;
  change([&] {
    request = ++beat_.request;
    beat_.phase = Phase::kAsking;
    beat_.last_quorum = state.newness.last_quorum;
    beat_.outer_steps = state.newness.outer_steps;
    beat_.state_hash = state.hash;
    beat_.weight = state.weight;
    beat_.has_finished = state.has_finished;
    beat_.missed = state.missed;
  });
  const Timer timer;
  while (timer.seconds() < seconds && !should_stop()) {
    std::this_thread::sleep_for(kAskPause);
    note_progress();
    {
      const std::lock_guard lock(mutex_);
      check(refusal_.empty(), refusal_);
    }
    try {
      const std::optional<std::string> assignment = store_.get(assignment_key(options_.worker));
      if (!assignment) continue;
      const Quorum quorum = parse_quorum(*assignment);
      const Member& self = quorum.member(options_.worker);
      if (self.epoch != epoch_ || self.request != request) continue;  // an older assignment
      change([&] {
        beat_.phase = self.donor ? Phase::kHealing : Phase::kTraining;
        beat_.last_quorum = quorum.number();
        beat_.outer_steps = quorum.outer_steps;
      });
      return quorum;
    } catch (const StoreError&) {
      // The heartbeats say so, and connect again.
    } catch (const CheckError&) {
      // No quorum with this worker: somebody else wrote it. The next one replaces it.
    }
  }
  train();
  return {};
}

void Membership::run() {
  std::unique_lock lock(mutex_);
  while (!has_ended_) {
    is_due_ = false;
    const bool is_last = is_leaving_;  // and this heartbeat says so
    lock.unlock();
    try {
      // The lighthouse may be another one by now without any call having failed here.
      if (!has_joined_ || store_.get(kLighthouseKey) != lighthouse_) join();
      send_beat();
    } catch (const std::exception& error) {  // or there is no record of it yet
      if (!is_lost_) log_(concat("has lost the lighthouse, and tries again: ", error.what()));
      is_lost_ = true;
      has_joined_ = false;
    }
    lock.lock();
    if (is_last || !refusal_.empty()) break;
    changed_.wait_for(lock, std::chrono::duration<double>(options_.beat_s),
                      [&] { return is_due_ || has_ended_; });
  }
  has_ended_ = true;
  changed_.notify_all();
}

void Membership::join() {
  const std::optional<std::string> text = store_.get(kLighthouseKey);
  if (!text) throw StoreError("the lighthouse is only starting");
  const LighthouseRecord lighthouse = parse_lighthouse(*text);
  const std::string key = fingerprint_key(lighthouse.epoch);
  const std::string fingerprint = store_.compare_set(key, "", options_.fingerprint);
  if (fingerprint.empty()) store_.set(key, options_.fingerprint);  // a stranger's was there
  if (!fingerprint.empty() && fingerprint != options_.fingerprint) {
    refuse(concat("its model or options are ", options_.fingerprint, ", those of the group are ",
                  fingerprint, "; give it the same, or another group a lighthouse of its own"));
    return;
  }
  if (const std::string reason = unreachable(options_.address, lighthouse); !reason.empty()) {
    refuse(reason);
    return;
  }
  if (text != lighthouse_) {
    log_(concat(lighthouse_.empty() ? "joins" : "joins again, after a restart of the lighthouse:",
                " epoch ", lighthouse.epoch));
    num_beats_ = 0;
  }
  lighthouse_ = *text;
  lighthouse_epoch_ = lighthouse.epoch;
  has_joined_ = true;
  is_lost_ = false;
}

void Membership::send_beat() {
  if (!has_joined_) return;  // refused
  BeatRecord record = {.rules = options_.rules,
                       .fingerprint = options_.fingerprint,
                       .lighthouse_epoch = lighthouse_epoch_};
  {
    const std::lock_guard lock(mutex_);
    record.beat = beat_;
    record.is_leaving = is_leaving_;
  }
  record.beat.progress = progress_;
  record.number = ++num_beats_;
  const std::string key = beat_key(options_.worker), text = to_text(record);
  const std::string last = std::exchange(last_beat_, text);
  // The first one replaces what a process has left that has died. Later it finds its own last one.
  const std::string found = num_beats_ > 1 ? store_.compare_set(key, last, text) : last;
  if (found == text) return;
  if (found != last && is_of_later_epoch(found)) {
    refuse("another process has taken its place: each needs a --worker of its own");
    return;
  }
  store_.set(key, text);  // there was none
}

void Membership::refuse(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  refusal_ = concat("worker ", options_.worker, " is refused: ", reason);
}

}  // namespace ladder
