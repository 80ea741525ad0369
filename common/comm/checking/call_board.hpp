// Where all ranks write what they call, so that those which disagree or wait forever can be told.
//
// It is a store (key_value_store.hpp) that rank 0 serves, next to the transport: it answers while
// every rank waits, on one machine or several, whatever carries the messages. The first rank to
// make a call writes down what it is, and the others compare theirs with it, in one request and
// before anything goes to the transport. Each rank also keeps its newest calls there, so a rank that
// computes or has died still says what it called last.
//
// Finding a disagreement, or waiting longer than the time-out, ends all ranks: whoever finds it
// writes the verdict, and all that wait throw it.
//
// Threads: one at a time. Throws: Desynchronized; CheckError if rank 0 has gone, or does not answer,
// because it is frozen, for as long as a rank may wait (5 s at least).
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/checking/call_table.hpp"
#include "common/comm/communicator.hpp"
#include "common/comm/store/key_value_store.hpp"
#include "common/core/check.hpp"
#include "common/core/timer.hpp"

namespace ladder {

// The verdict: the ranks have parted, or one has waited too long.
class Desynchronized : public CheckError {
 public:
  using CheckError::CheckError;
};

class CallBoard {
 public:
  // Collective over `comm`, which is only needed here: tells all ranks where the store is.
  CallBoard(Communicator& comm, double timeout_s);
  ~CallBoard();  // leaves, if this rank has not
  CallBoard(const CallBoard&) = delete;
  CallBoard& operator=(const CallBoard&) = delete;

  void begin_step(std::int64_t step) { step_ = step; }

  // This rank's next call in a sequence of these ranks. `what` is shown, `must_agree` compared.
  // Throws if another rank has called something else.
  Call announce(const std::string& sequence, const std::vector<int>& ranks, const std::string& what,
                const std::string& must_agree, const CallSite& where);
  // Returns once is_done() is true. Throws after the time-out, or if there is a verdict.
  void wait_until(const Call& call, const std::vector<int>& ranks,
                  const std::function<bool()>& is_done);
  // Calls a function of the transport. If it throws, the verdict, if there is one, says why.
  template <class Function>
  auto prefer_verdict(const Function& function) {
    try {
      return function();
    } catch (const std::exception&) {
      if (const std::string verdict = verdict_if_any(); !verdict.empty())
        throw Desynchronized(verdict);
      throw;
    }
  }
  // For a rank that has failed, with the reason: tells the others. Returns who waits for whom and
  // the newest calls, or nothing if no rank waits; without rank 0, only this rank's last call.
  std::string announce_failure(const std::string& reason);
  // Says that this rank has ended. Rank 0 waits until all have; after a failure, a second at most.
  void leave(bool has_failed);

 private:
  using State = RankCalls::State;

  void keep(State state, const Call& current = {}, const std::vector<int>& ranks = {});
  void announce_end();
  std::string verdict_if_any();
  std::string read(const std::string& key);  // nothing: it is not there
  // Those of `ranks` that have not made the call yet.
  std::vector<int> missing(const Call& call, const std::vector<int>& ranks);
  RankCalls read_rank(int rank);
  std::vector<RankCalls> read_all();
  std::vector<RankCalls> read_once_all_wait();
  std::vector<RankCalls> read_with_frozen_ranks();
  void say_how_long();  // this rank has waited
  void pause();
  // The first one stays. Returns it.
  std::string conclude(const std::string& verdict);

  int rank_, size_;
  double timeout_s_;
  int exceptions_at_start_;
  bool has_left_ = false;
  std::unique_ptr<KeyValueStore> store_;
  std::int64_t step_ = 0;
  std::map<std::string, std::int64_t> num_calls_;  // by sequence
  std::deque<Call> newest_;
  Timer since_wait_;
  bool is_known_to_wait_ = false;  // by the others
};

}  // namespace ladder
