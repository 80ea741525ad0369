#include "common/comm/checking/call_board.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <utility>

#include "common/comm/members.hpp"
#include "common/core/json.hpp"

namespace ladder {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Call, sequence, number, what, where, step)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankCalls, state, current, ranks, newest)

namespace {

constexpr std::size_t kNumKept = 8;  // calls of each rank
constexpr double kConnectTimeoutSeconds = 60;
// A rank that has waited this long says so, and looks for a verdict as often.
constexpr double kLookEverySeconds = 0.02;
// A rank that waits and has not looked for this long is frozen.
constexpr double kFrozenSeconds = 1;
// How long others get to make their next call, before it is said that they have not.
constexpr double kNextCallSeconds = 2;
// How long rank 0 may take to answer, at least: while it computes, a thread of libtorch's does.
constexpr double kPatienceSeconds = 5;
// How long rank 0 serves the others after a failure. They need it to end as well.
constexpr double kFailedSeconds = 1;

const char* const kVerdict = "verdict";
const char* const kLeft = "left";

// "step3_naive_dp/naive_dp.cpp:16".
std::string text_of(const CallSite& where) {
  if (where.line() == 0) return "";
  const std::string path = where.file_name();
  const auto file = path.rfind('/');
  const auto folder = file == std::string::npos ? file : path.rfind('/', file - 1);
  return concat(folder == std::string::npos ? path : path.substr(folder + 1), ":", where.line());
}

std::string count_key(const std::string& sequence, int rank) {
  return concat("count/", sequence, "/", rank);
}
std::string call_key(const char* kind, const Call& call) {
  return concat(kind, "/", call.sequence, "/", call.number);
}
std::string state_key(int rank) {
  return concat("state/", rank);
}
std::string waited_key(int rank) {
  return concat("waited/", rank);
}

}  // namespace

CallBoard::CallBoard(Communicator& comm, double timeout_s)
    : rank_(comm.rank()),
      size_(comm.size()),
      timeout_s_(timeout_s),
      exceptions_at_start_(std::uncaught_exceptions()) {
  store_ = shared_store(comm, kConnectTimeoutSeconds);
  if (rank_ > 0 && std::isfinite(timeout_s))
    store_->limit_patience(std::max(timeout_s, kPatienceSeconds),
                           "rank 0, which keeps the calls of all ranks (--check-collectives),");
  keep(State::kRuns);
  comm.barrier();  // nobody is waited for, with a time-out, who is still connecting
}

CallBoard::~CallBoard() {
  if (!has_left_) leave(std::uncaught_exceptions() > exceptions_at_start_);
}

void CallBoard::leave(bool has_failed) {
  has_left_ = true;
  try {
    if (!has_failed) announce_end();
    keep(has_failed ? State::kFailed : State::kEnded);
    std::int64_t num_left = store_->add(kLeft, 1);
    const Timer timer;
    const double patience_s = !has_failed              ? std::numeric_limits<double>::infinity()
                              : std::isinf(timeout_s_) ? 0  // nobody asks for a verdict
                                                       : kFailedSeconds;
    while (rank_ == 0 && num_left < size_ && timer.seconds() < patience_s) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      num_left = store_->add(kLeft, 0);
    }
  } catch (const CheckError&) {  // rank 0 has gone, and with it the need to say anything
  }
}

// It is a call like any other, so a rank that calls more than the rest parts from them here.
void CallBoard::announce_end() {
  try {
    announce(kAllRanks, world_members(size_), "the end", "the end", {});
  } catch (const Desynchronized&) {  // the others find the verdict
  }
}

Call CallBoard::announce(const std::string& sequence, const std::vector<int>& ranks,
                         const std::string& what, const std::string& must_agree,
                         const CallSite& where) {
  const Call call = {sequence, ++num_calls_[sequence], what, text_of(where), step_};
  newest_.push_back(call);
  if (newest_.size() > kNumKept) newest_.pop_front();
  keep(State::kRuns);
  store_->put(count_key(sequence, rank_), std::to_string(call.number));
  const std::string key = call_key("call", call), count = call_key("made", call);
  if (store_->put_if_absent(key, must_agree) != must_agree) {
    keep(State::kParts, call);
    const std::vector<RankCalls> all = read_once_all_wait();
    throw Desynchronized(
        conclude(concat(describe_parting(call, all), describe_waits(all), side_by_side(all))));
  }
  if (store_->add(count, 1) == std::ssize(ranks)) {  // nobody will ask for it again
    store_->remove(key);
    store_->remove(count);
  }
  return call;
}

void CallBoard::wait_until(const Call& call, const std::vector<int>& ranks,
                           const std::function<bool()>& is_done) {
  since_wait_.restart();
  double looked_at = 0, waited = 0, next_look = kLookEverySeconds;
  while (!prefer_verdict(is_done)) {
    const double now = since_wait_.seconds();
    waited += std::min(now - looked_at, kLookEverySeconds);  // not while the machine stood still
    looked_at = now;
    if (waited < next_look) {  // at first without a pause, for what takes microseconds
      waited < 1e-3 ? std::this_thread::yield()
                    : std::this_thread::sleep_for(std::chrono::microseconds(50));
      continue;
    }
    next_look = waited + kLookEverySeconds;
    if (!is_known_to_wait_) keep(State::kWaits, call, ranks);
    is_known_to_wait_ = true;
    if (const std::string verdict = verdict_if_any(); !verdict.empty())
      throw Desynchronized(verdict);
    if (waited < timeout_s_) continue;
    const std::vector<RankCalls> all = read_with_frozen_ranks();
    throw Desynchronized(
        conclude(concat("rank ", rank_, " has waited for ", timeout_s_,
                        " s (--check-collectives):\n", describe_waits(all), side_by_side(all))));
  }
  if (std::exchange(is_known_to_wait_, false)) keep(State::kRuns);
}

void CallBoard::say_how_long() {
  store_->put(waited_key(rank_), concat(std::round(100 * since_wait_.seconds()) / 100));
}

std::string CallBoard::verdict_if_any() {
  try {
    if (is_known_to_wait_) say_how_long();
    return read(kVerdict);
  } catch (const CheckError&) {  // rank 0 has gone: the transport, or the launcher, ends this rank
    return "";
  }
}

std::vector<int> CallBoard::missing(const Call& call, const std::vector<int>& ranks) {
  std::vector<int> missing;
  for (const int rank : ranks) {
    const std::string count = read(count_key(call.sequence, rank));
    if (count.empty() || std::stoll(count) < call.number) missing.push_back(rank);
  }
  return missing;
}

std::string CallBoard::announce_failure(const std::string& reason) try {
  keep(State::kFailed);
  const std::vector<RankCalls> all = read_once_all_wait();
  const std::string waits = describe_waits(all);
  const std::string who_waits = waits.empty() ? "" : waits + side_by_side(all);
  conclude(concat("rank ", rank_, " has failed: ", reason, "\n", who_waits));
  return who_waits;
} catch (const CheckError&) {  // rank 0 has gone, or is frozen: what is known is this rank's call
  if (newest_.empty()) return "";
  const Call& last = newest_.back();
  return concat("rank ", rank_, " is at call ", last.number, " ", last.sequence, ": ", last.what,
                last.where.empty() ? "" : ", at " + last.where, "\n");
}

// What this rank does, what it waits in, for which ranks' calls, and its newest calls.
void CallBoard::keep(State state, const Call& current, const std::vector<int>& ranks) {
  const RankCalls own = {.state = state,
                         .current = current,
                         .ranks = ranks,
                         .newest = {newest_.begin(), newest_.end()}};
  store_->put(state_key(rank_), to_text(SortedJson(own)));
}

std::string CallBoard::read(const std::string& key) {
  return store_->has(key) ? store_->get(key) : "";
}

RankCalls CallBoard::read_rank(int rank) {
  auto calls = SortedJson::parse(read(state_key(rank))).get<RankCalls>();
  if (calls.state != State::kWaits) return calls;
  calls.waits_for = missing(calls.current, calls.ranks);
  calls.waited_s = read(waited_key(rank));
  return calls;
}

std::vector<RankCalls> CallBoard::read_all() {
  std::vector<RankCalls> all;
  for (int r = 0; r < size_; ++r) all.push_back(read_rank(r));
  return all;
}

// Once no rank runs any more, or soon: what those that run would call next may matter.
std::vector<RankCalls> CallBoard::read_once_all_wait() {
  const Timer timer;
  for (;;) {
    std::vector<RankCalls> all = read_all();
    const bool all_wait = std::none_of(
        all.begin(), all.end(), [](const RankCalls& rank) { return rank.state == State::kRuns; });
    if (all_wait || timer.seconds() > kNextCallSeconds) return all;
    pause();
  }
}

// A rank that waits looks at the board all the time. To those that wait for one that does not, it is
// like a rank that computes.
std::vector<RankCalls> CallBoard::read_with_frozen_ranks() {
  const std::vector<RankCalls> before = read_all();
  for (const Timer timer; timer.seconds() < kFrozenSeconds;) pause();
  std::vector<RankCalls> all = read_once_all_wait();
  for (std::size_t r = 0; r < all.size(); ++r) {
    const bool has_looked = all[r].waited_s != before[r].waited_s;
    if (all[r].state == State::kWaits && !has_looked) all[r].state = State::kRuns;
  }
  for (RankCalls& rank : all) {
    if (rank.state != State::kWaits || !rank.waits_for.empty()) continue;
    std::copy_if(rank.ranks.begin(), rank.ranks.end(), std::back_inserter(rank.waits_for),
                 [&](int r) { return all[static_cast<std::size_t>(r)].state == State::kRuns; });
  }
  return all;
}

void CallBoard::pause() {
  if (is_known_to_wait_) say_how_long();
  std::this_thread::sleep_for(std::chrono::duration<double>(kLookEverySeconds));
}

std::string CallBoard::conclude(const std::string& verdict) {
  return store_->put_if_absent(kVerdict, verdict);
}

}  // namespace ladder
