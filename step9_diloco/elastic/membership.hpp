// A worker's place in the group: its reports to the lighthouse, and what these bring about.
//
// A thread of its own reports every so often, and at once when there is something to say; the other
// threads only change what the next report will say, and wait for what an answer brings. So nothing
// that the lighthouse does, or does not do, can stop them: all they wait for has a deadline. If no
// answer comes for a while, the thread connects again, to whatever lighthouse is there then.
//
// A report carries the number of inner steps: if only the training thread hangs, the others notice.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "common/core/timer.hpp"
#include "step9_diloco/elastic/elastic_options.hpp"
#include "step9_diloco/elastic/listener.hpp"
#include "step9_diloco/elastic/log.hpp"
#include "step9_diloco/elastic/quorum.hpp"
#include "step9_diloco/elastic/report.hpp"

namespace ladder {

class Membership {
 public:
  // What this worker comes with: how new its state is, from its checkpoint, where it receives data,
  // and what all workers must have in common.
  struct Start {
    History history = {};
    std::int64_t outer_steps = 0;
    std::string address;
    GroupSettings settings;
  };
  // Starts to report.
  Membership(const ElasticOptions& options, const std::optional<CurveKeys>& keys,
             const Start& start, Log log);
  ~Membership();  // as if the process had been killed: see leave()
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // The training thread is alive. Any thread, at any time; cheap.
  void note_progress() { ++progress_; }

  // Asks for a quorum, and waits for one that this worker is a member of; nothing after `seconds`,
  // once should_stop(), or when the group refuses this worker. If it has to heal, the others do not
  // wait for it from then on, until train(); and count it as one that has that state already.
  struct State {
    History history = {};
    std::int64_t outer_steps = 0;
    std::string hash = {};
    bool has_finished = false;
  };
  std::optional<Quorum> form_quorum(const State& state, double seconds,
                                    const std::function<bool()>& should_stop);

  // Waits until the round of the last quorum is decided. Votes for its outer step if `is_ready`:
  // this worker holds the whole average. After `seconds`, or once should_stop(), it votes against
  // it. Only contributors have a vote: one that heals gives up instead. kUnknown as well if the
  // lighthouse does not answer, also not to a report of a second after that or later. Any thread.
  Decision await_decision(
      bool is_ready, double seconds,
      const std::function<bool()>& should_stop = [] { return false; });
  // It is aborted, or unknown: whoever waits for values in it waits in vain. Any thread.
  bool is_aborted();

  // The round of the last quorum is over for this worker: it has taken its outer step, or never
  // will. No quorum will be formed without that step while this worker is there. Any thread.
  void end_round(bool is_taken);

  void train();  // it heals no longer, or does not ask any more

  // Why the group refuses this worker, which reports no more: its settings or its run are others,
  // another process has its number, or the others cannot reach its address. Empty: it does not.
  std::string refusal();
  double join_timeout_s();  // the lighthouse's; 0 before it has answered. Any thread.

  // Tells the others not to wait for this worker any more. It reports nothing afterwards.
  void leave();

 private:
  void run();
  void note_answer(const Report& report, const Answer& answer);
  std::chrono::duration<double> pause() const;
  void say_at_once();

  const ElasticOptions options_;
  const std::optional<CurveKeys> keys_;
  const GroupSettings settings_;
  Log log_;
  std::atomic<std::int64_t> progress_ = 0;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  Report report_;                        // the next one
  double join_timeout_s_ = 0;            // the lighthouse's
  std::string refusal_;                  // why the group refuses this worker; empty: it does not
  std::string wait_;                     // why it is not in the group yet
  std::optional<Quorum> quorum_;         // the last answer to a request
  Decision decision_ = Decision::kOpen;  // of report_.round
  std::uint64_t lighthouse_epoch_ = 0;   // 0: it has not answered yet
  bool is_lost_ = false;                 // the lighthouse
  double answered_s_ = 0, unanswered_s_ = 0;  // when the last report was made that was, or was not
  bool is_due_ = false, has_ended_ = false;
  const Timer timer_;
  std::thread thread_;
};

}  // namespace ladder
