// Passes every call on to another communicator, and records each operation in a TraceLog: what, in
// which group, how many bytes, from when to when, and the wait() for it.
//
// An operation is taken for done when this rank learns of it: by the first test() that says so, or
// when wait() returns. It may have been done before; of messages on a simulated link, the log knows
// when they arrived (known_arrival.hpp). On a GPU, wait() does not block the CPU, so an operation
// that is waited for ends when the GPU has been told to wait.
//
// The n-th collective of a group is its n-th on all ranks of the group. The n-th send of one rank to
// another with a tag is received by the n-th recv of the other with that tag.
//
// Collective: split() sends 8 bytes more than the inner communicator's, to learn who is in the part.
//             All ranks of a group trace it.
// Lifetime:   the log outlives the communicator, its parts and their operations.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "common/comm/forwarding_communicator.hpp"
#include "common/core/trace.hpp"

namespace ladder {

class TracingCommunicator final : public ForwardingCommunicator {
 public:
  // A group of all ranks, "world" in the log.
  TracingCommunicator(std::unique_ptr<Communicator> inner, TraceLog& log);

  WorkPtr start(const Operation& operation) override;
  // The part is named for its ranks: "ranks 0 2", or "ranks 0 2 #2" if they have such a group
  // already.
  std::unique_ptr<Communicator> split(int color, int key) override;

 private:
  using GroupNames = std::map<std::string, int>;  // and how many have been given it
  TracingCommunicator(std::unique_ptr<Communicator> inner, TraceLog& log, std::vector<int> members,
                      const char* name, std::shared_ptr<GroupNames> names);
  TracedOperation describe(const Operation& operation);

  TraceLog& log_;
  std::vector<int> members_;  // ranks of the world, in the order of this group
  const char* name_;
  std::shared_ptr<GroupNames> names_;  // of all groups of this rank
  std::int64_t num_collectives_ = 0;
  std::map<std::tuple<CommOp, int, int>, std::int64_t> num_messages_;  // by peer and tag
};

// How far the ranks' clocks are apart, so that their events fit on one time line.
//
// Ranks on one machine read the same steady clock (CLOCK_MONOTONIC, which counts from when the
// machine was started). Any other rank sends rank 0 a message, which answers with its time: at that
// moment this rank's clock was between those of the sending and of the answer's arrival. Of 16 such
// round trips the shortest counts.
//
// Clocks drift, by some microseconds per second, so a trace compares them when it begins and ends.
std::string machine_id();  // the same for processes with the same steady clock; empty: unknown

// Collective, blocking. `machine` and `now_ns` are those of this rank.
ClockReading compare_clocks(Communicator& comm, const std::string& machine = machine_id(),
                            const std::function<std::int64_t()>& now_ns = trace_now_ns);

}  // namespace ladder
