// What a DiLoCo worker needs from the others: the average of a tensor over those that take part.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

#include "common/comm/communicator.hpp"

namespace ladder {

class Averager {
 public:
  virtual ~Averager() = default;

  // Starts to add up `values` [n] over the workers; nobody may touch them until finish() returns.
  // One average is in flight at a time.
  virtual void start(at::Tensor values) = 0;
  // Lets the average in flight, if there is one, make progress; never waits. A transport may move a
  // large message, and start the second half of an average, only while it is called: MPI does. So
  // call it often.
  virtual void poll() {}
  // Waits for it. Then `values` hold the sum over those that took part, in the order of tree_sum.hpp,
  // divided by their number: the same bits for each of them. Returns that number, or nothing if the
  // round has failed, for all of them; then the values mean nothing.
  virtual std::optional<int> finish() = 0;
};

// All ranks of a group, which take part always: without them no operation ends. 2(N−1)/N · 4 bytes
// sent per value. finish() waits by Work::wait(), without polling. The communicator outlives it.
class GroupAverager : public Averager {
 public:
  explicit GroupAverager(Communicator& comm);
  ~GroupAverager() override;
  void start(at::Tensor values) override;
  void poll() override;
  std::optional<int> finish() override;

 private:
  struct State;  // what it knows, and what it does with it: averager.cpp
  std::unique_ptr<State> state_;
};

}  // namespace ladder
