// A worker's place in the group: its heartbeats, and the quorums that it asks for.
//
// A thread of its own sends a heartbeat every so often, and at once when the worker's phase or its
// outer step changes; it connects again after the lighthouse was away. A heartbeat carries the
// number of inner steps: if only the training thread hangs, the others notice.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "step9_diloco/elastic/log.hpp"
#include "step9_diloco/elastic/quorum.hpp"
#include "step9_diloco/elastic/records.hpp"
#include "step9_diloco/elastic/store.hpp"

namespace ladder {

struct MembershipOptions {
  int worker = 0;
  Newness newness = {};          // of the state that this worker comes with, from its checkpoint
  std::string address = {};      // where this worker receives data
  std::string fingerprint = {};  // of model and options; all workers have the same
  QuorumRules rules = {};
  double beat_s = 0.1;  // between heartbeats; a fraction of rules.stale_s
};

class Membership {
 public:
  // Starts to send heartbeats. Lifetime: the store outlives it.
  Membership(const MembershipOptions& options, Store& store, Log log);
  ~Membership();  // as if the process had been killed: see leave()
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // The training thread is alive. Any thread, at any time; cheap.
  void note_progress() { ++progress_; }

  // The round of the last quorum is over for this worker: it has taken its outer step, or never
  // will. No quorum will be formed without that step while this worker is there. Any thread.
  void end_round(bool is_taken);

  // Asks for a quorum, and waits for one that this worker is a member of; nothing after `seconds`,
  // or once should_stop(). If it has to heal, the others do not wait for it from then on, until
  // train(); and count it as one that has that state already. Throws CheckError when the group refuses this worker: its fingerprint is
  // another one, another process has taken its place, or the others cannot reach its address.
  struct State {
    Newness newness = {};
    std::string hash = {};
    double weight = 1;
    bool has_finished = false;
    std::vector<std::uint64_t> missed = {};  // epochs of workers that it does not hear
  };
  std::optional<Quorum> form_quorum(const State& state, double seconds,
                                    const std::function<bool()>& should_stop);

  void train();  // it heals no longer, or does not ask any more

  // Tells the others not to wait for this worker any more. It sends no heartbeats afterwards.
  void leave();

  std::uint64_t epoch() const { return epoch_; }

 private:
  void change(const std::function<void()>& change_beat);
  void run();
  void join();
  void send_beat();
  bool is_of_later_epoch(const std::string& text) const;
  void refuse(const std::string& reason);

  MembershipOptions options_;
  Store& store_;
  Log log_;
  const std::uint64_t epoch_;
  std::atomic<std::int64_t> progress_ = 0;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  Heartbeat beat_;
  std::string refusal_;  // why the group refuses this worker; empty: it does not
  bool is_due_ = false, is_leaving_ = false, has_ended_ = false;
  // Of the thread alone.
  std::string lighthouse_;  // its record
  std::uint64_t lighthouse_epoch_ = 0;
  bool has_joined_ = false, is_lost_ = false;
  std::int64_t num_beats_ = 0;
  std::string last_beat_;
  std::thread thread_;
};

}  // namespace ladder
