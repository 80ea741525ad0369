// Passes every call on to another communicator, and records each operation in a TraceLog: what, in
// which group, how many bytes, from when to when, and the wait() for it.
//
// An operation is taken for done when this rank learns of it: by the first test() that says so, or
// when wait() returns. It may have been done before. On a GPU, wait() does not block the CPU, so an
// operation that is waited for ends when the GPU has been told to wait.
//
// The n-th collective of a group is its n-th on all ranks of the group. The n-th send of one rank to
// another with a tag is received by the n-th recv of the other with that tag.
//
// Collective: split() sends 8 bytes more than the inner communicator's, to learn who is in the part.
//             All ranks of a group trace it.
// Lifetime:   the log outlives the communicator, its parts and their operations.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "common/comm/communicator.hpp"
#include "common/core/trace.hpp"

namespace ladder {

class TracingCommunicator final : public Communicator {
 public:
  // A group of all ranks, "world" in the log.
  TracingCommunicator(std::unique_ptr<Communicator> inner, TraceLog& log);

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  WorkPtr start(const Operation& operation) override;
  // The part is named for its ranks: "ranks 0 2", or "ranks 0 2 #2" if they have such a group
  // already.
  std::unique_ptr<Communicator> split(int color, int key) override;
  Traffic traffic() const override { return inner_->traffic(); }
  void begin_step(std::int64_t step) override { inner_->begin_step(step); }

 private:
  using GroupNames = std::map<std::string, int>;  // and how many have been given it
  TracingCommunicator(std::unique_ptr<Communicator> inner, TraceLog& log, std::vector<int> members,
                      const char* name, std::shared_ptr<GroupNames> names);
  TracedOperation describe(const Operation& operation);

  std::unique_ptr<Communicator> inner_;
  TraceLog& log_;
  std::vector<int> members_;  // ranks of the world, in the order of this group
  const char* name_;
  std::shared_ptr<GroupNames> names_;  // of all groups of this rank
  std::int64_t num_collectives_ = 0;
  std::map<std::tuple<CommOp, int, int>, std::int64_t> num_messages_;  // by peer and tag
};

}  // namespace ladder
