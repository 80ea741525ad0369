#include "step9_diloco/elastic/lighthouse.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "common/core/check.hpp"
#include "step9_diloco/elastic/decision.hpp"
#include "step9_diloco/elastic/no_name_servers.hpp"
#include "step9_diloco/elastic/unheard.hpp"

namespace ladder {
namespace {

using Bytes = std::vector<std::uint8_t>;
std::string text_of(const Bytes& bytes) {
  return {bytes.begin(), bytes.end()};
}

// Rounds whose members have not all said that they know the decision are kept for as many others:
// a member that never comes back says nothing.
constexpr std::size_t kMaxRounds = 64;

// A socket bound to the port. The store, left alone, would listen to the whole network.
int bound_socket(int port, bool is_public) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  check(fd >= 0, "cannot open a socket: ", std::strerror(errno));
  const int yes = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(is_public ? INADDR_ANY : INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  const std::string reason = std::strerror(errno);
  ::close(fd);
  throw CheckError(concat("the lighthouse cannot listen on port ", port, ": ", reason));
}

int port_of(int fd) {
  sockaddr_in address = {};
  socklen_t size = sizeof address;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

// Since 1970. Checkpoints hold it as a count of at most 2^53: that is enough until 2255.
std::uint64_t now_us() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(since_1970).count());
}

}  // namespace

Lighthouse::Lighthouse(int port, bool is_public, Log log, Seal seal)
    : log_(std::move(log)), seal_(seal), lighthouse_epoch_(now_us()), counter_(lighthouse_epoch_) {
  const int fd = bound_socket(port, is_public);
  port_ = port_of(fd);
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(port_);
  options.isServer = true;
  options.waitWorkers = false;
  options.masterListenFd = fd;
  options.timeout = std::chrono::seconds(1);  // nobody else deletes keys, but who knows
  const NoNameServers no_name_servers;
  store_ = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  set(kLighthouseKey, to_text(LighthouseRecord{lighthouse_epoch_, is_public}));
  log_(concat("epoch ", lighthouse_epoch_, " listens on ",
              is_public ? "all addresses" : "127.0.0.1", ", port ", port_));
}

Lighthouse::~Lighthouse() = default;

void Lighthouse::poll() {
  const double pause_s = since_poll_.seconds();
  since_poll_.restart();
  read_heartbeats();
  std::vector<Sighting> sightings;
  QuorumRules rules;
  for (const auto& [number, worker] : workers_) {
    sightings.push_back({.beat = known(worker),
                         .beat_age_s = worker.since_beat.seconds(),
                         .progress_age_s = worker.since_progress.seconds(),
                         .asking_s = worker.since_asking.seconds()});
    rules = worker.record.rules;  // the same for all: they are part of the fingerprint
  }
  // Nobody is there, or, after a while in which this process was stopped, all heartbeats look old.
  // As after a start, the first to be heard must not go off alone.
  const bool is_anybody_there =
      std::ranges::any_of(sightings, [&](const Sighting& seen) { return !is_lost(seen, rules); });
  if (!is_anybody_there || pause_s > rules.stale_s / 2) watching_.restart();
  leave_out_unheard(sightings, rules);
  if (std::optional<Quorum> quorum =
          decide_quorum(std::move(sightings), rules, watching_.seconds()))
    publish(*std::move(quorum));
}

Heartbeat Lighthouse::known(const Worker& worker) const {
  Heartbeat beat = worker.record.beat;
  if (worker.answer) beat = as_known(beat, *worker.answer, worker.answer->number() == committed_);
  beat.last_quorum = counter_.in_order(beat.last_quorum);
  return beat;
}

void Lighthouse::leave_out_unheard(std::vector<Sighting>& sightings, const QuorumRules& rules) {
  const std::set<int> unheard = unheard_workers(sightings, rules);
  for (const int worker : unheard)
    if (!unheard_.contains(worker))
      log_(concat("leaves out worker ", worker, ": its data does not reach others, or theirs not ",
                  "it; is there a firewall between them, or an --elastic-key of another run?"));
  unheard_ = unheard;
  std::erase_if(sightings, [&](const Sighting& s) { return unheard.contains(s.beat.worker); });
}

void Lighthouse::set(const std::string& key, const std::string& text) {
  const std::string sealed = seal_.seal(key, text);
  store_->set(key, Bytes(sealed.begin(), sealed.end()));
}

bool Lighthouse::has_fingerprint() {
  const std::string key = fingerprint_key(lighthouse_epoch_);
  if (fingerprint_.empty() && store_->check({key}))
    fingerprint_ = seal_.open(key, text_of(store_->get(key))).value_or("");
  return !fingerprint_.empty();
}

void Lighthouse::read_heartbeats() {
  if (!has_fingerprint()) return;
  std::vector<std::string> keys = store_->listKeys();
  std::erase_if(keys, [](const std::string& key) { return !key.starts_with("beat/"); });
  if (keys.empty()) return;
  const std::vector<Bytes> values = store_->multiGet(keys);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::optional<std::string> text = seal_.open(keys[i], text_of(values[i]));
    if (!text && !std::exchange(has_warned_, true))
      log_(
          concat("ignores ", keys[i], ", written by somebody who does not have the --elastic-key"));
    if (!text) continue;
    try {
      const BeatRecord record = parse_beat(*text);
      check(keys[i] == beat_key(record.beat.worker) && record.beat.weight > 0, "it lies");
      // Others are refused, as membership.hpp says.
      if (record.fingerprint == fingerprint_ && !is_outdated(record)) see(record, *text);
    } catch (const CheckError& error) {
      store_->deleteKey(keys[i]);
      log_(concat("ignores what is no heartbeat, in ", keys[i], ": ", error.what()));
    }
  }
}

// By a process that is over, or that has to leave its place to a later one; or put back by
// somebody.
bool Lighthouse::is_outdated(const BeatRecord& record) const {
  const std::uint64_t epoch = record.beat.epoch;
  if (record.lighthouse_epoch != lighthouse_epoch_ ||
      past_epochs_.contains({record.beat.worker, epoch}))
    return true;
  const auto found = workers_.find(record.beat.worker);
  if (found == workers_.end()) return false;
  const Worker& last = found->second;
  if (epoch == last.record.beat.epoch) return record.number < last.record.number;
  return epoch < last.record.beat.epoch && last.since_beat.seconds() <= record.rules.stale_s;
}

void Lighthouse::see(const BeatRecord& record, const std::string& text) {
  const auto [entry, is_new] = workers_.try_emplace(record.beat.worker);
  Worker& worker = entry->second;
  if (worker.text == text) return;
  const Heartbeat last = worker.record.beat;
  const bool is_other_epoch = is_new || last.epoch != record.beat.epoch;
  worker.since_beat.restart();
  if (is_other_epoch || last.progress != record.beat.progress) worker.since_progress.restart();
  if (is_other_epoch || last.request != record.beat.request) worker.since_asking.restart();
  if (is_other_epoch) {
    if (!is_new) past_epochs_.insert({record.beat.worker, last.epoch});
    worker.answer.reset();
    log_(concat("worker ", record.beat.worker, is_new ? " joins" : " is back", " at outer step ",
                record.beat.outer_steps));
  }
  worker.record = record;
  worker.text = text;
  counter_.hear(record.beat.last_quorum);
  if (!record.is_leaving) return;
  log_(concat("worker ", record.beat.worker, " leaves"));
  store_->deleteKey(beat_key(record.beat.worker));
  past_epochs_.insert({record.beat.worker, record.beat.epoch});
  workers_.erase(entry);
}

void Lighthouse::publish(Quorum quorum) {
  // Ends the last round before the next one; older ones are decided by now. Its members, if it is
  // still open, have given it up, or are frozen: one that wakes must not commit it behind the back
  // of the new one's. But if it has been committed in this very moment, some have taken its outer
  // step, or are about to, and have not said so yet. So the next one is decided anew, knowing that.
  if (!rounds_.empty() && end_decision(*store_, seal_, rounds_.back())) {
    const QuorumNumber last = rounds_.back().number();
    if (std::exchange(committed_, last) != last) return;
  }
  const QuorumNumber number = counter_.next();
  quorum.lighthouse_epoch = number.lighthouse_epoch;
  quorum.id = number.id;
  forget_old_rounds();
  rounds_.push_back(quorum);  // first: if anything fails here, the next quorum ends this round
  create_decision(*store_, seal_, quorum);  // before anybody can ask for it
  const std::string text = to_text(quorum);
  std::string names;
  for (const Member& member : quorum.members) {
    set(assignment_key(member.worker), text);
    workers_.at(member.worker).answer = quorum;
    names += concat(" ", member.worker);
    if (member.donor) names += concat(" (heals from ", *member.donor, ")");
  }
  log_(concat("quorum ", quorum.id, " at outer step ", quorum.outer_steps, ": workers", names));
}

void Lighthouse::forget_old_rounds() {
  const auto is_over = [&](const Quorum& quorum) {
    std::vector<std::string> keys;
    for (const Member& member : quorum.members) keys.push_back(seen_key(quorum, member.worker));
    return store_->check(keys);
  };
  const auto forget = [&](const Quorum& quorum) {
    store_->deleteKey(decision_key(quorum));
    for (const Member& member : quorum.members) {
      store_->deleteKey(vote_key(quorum, member.worker));
      store_->deleteKey(seen_key(quorum, member.worker));
    }
  };
  while (rounds_.size() > kMaxRounds) {
    forget(rounds_.front());
    rounds_.pop_front();
  }
  std::erase_if(rounds_, [&](const Quorum& quorum) {
    if (!is_over(quorum)) return false;
    forget(quorum);
    return true;
  });
}

}  // namespace ladder
