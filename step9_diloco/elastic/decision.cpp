#include "step9_diloco/elastic/decision.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "common/core/timer.hpp"
#include "step9_diloco/elastic/records.hpp"

namespace ladder {
namespace {

const std::string kOpen = "open", kCommit = "commit", kAbort = "abort";
constexpr std::chrono::milliseconds kPollPause(2);  // between two polls

std::vector<std::uint8_t> sealed_bytes(const Seal& seal, const std::string& key,
                                       const std::string& text) {
  const std::string sealed = seal.seal(key, text);
  return {sealed.begin(), sealed.end()};
}

}  // namespace

void create_decision(c10d::TCPStore& store, const Seal& seal, const Quorum& quorum) {
  const std::string key = decision_key(quorum);
  store.set(key, sealed_bytes(seal, key, kOpen));
  store.check({key});  // set() does not wait until it has arrived
}

bool end_decision(c10d::TCPStore& store, const Seal& seal, const Quorum& quorum) {
  const std::string key = decision_key(quorum);
  const auto value = [&](const std::string& text) { return sealed_bytes(seal, key, text); };
  return store.compareSet(key, value(kOpen), value(kAbort)) == value(kCommit);
}

std::optional<Decision> poll(Store& store, const Quorum& quorum, int worker, const Vote& vote) {
  const std::string key = decision_key(quorum);
  std::optional<std::string> answer = store.get(key);
  if (!answer) return Decision::kUnknown;
  if (*answer == kOpen) {
    if (vote.is_ready) store.set(vote_key(quorum, worker), "yes");
    std::vector<std::string> votes;
    for (const Member& member : quorum.contributors())
      votes.push_back(vote_key(quorum, member.worker));
    const bool is_unanimous = store.has_all(votes);
    if (!is_unanimous && !vote.wants_abort) return {};
    answer = store.compare_set(key, kOpen, is_unanimous ? kCommit : kAbort);
  }
  if (*answer != kCommit && *answer != kAbort) return Decision::kUnknown;
  store.set(seen_key(quorum, worker), "yes");
  return *answer == kCommit ? Decision::kCommit : Decision::kAbort;
}

bool is_aborted(Store& store, const Quorum& quorum) {
  try {
    const std::optional<std::string> answer = store.get(decision_key(quorum));
    return !answer || *answer == kAbort;
  } catch (const StoreError&) {
    return false;
  }
}

Decision await_decision(Store& store, const Quorum& quorum, int worker, bool is_ready,
                        double seconds, const std::function<bool()>& should_stop) {
  const bool is_contributor = !quorum.member(worker).donor.has_value();
  const Timer timer;
  while (true) {
    const double start_s = timer.seconds();
    if (should_stop()) seconds = std::min(seconds, start_s);
    const bool is_late = start_s > seconds;
    try {
      const Vote vote = {is_ready && is_contributor, is_late && is_contributor};
      if (const auto decision = poll(store, quorum, worker, vote)) return *decision;
      if (is_late) return Decision::kUnknown;
    } catch (const StoreError&) {
      // This process, or the lighthouse, may have been stopped in the middle of the attempt. Only
      // one that has begun too late, on a connection of its own, shows that there is no answer.
      if (start_s > std::max(seconds, 0.0) + 1) return Decision::kUnknown;
    }
    std::this_thread::sleep_for(kPollPause);
  }
}

}  // namespace ladder
