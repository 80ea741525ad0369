// What a DiLoCo worker needs from the others: the average of a tensor over those that take part.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "common/comm/communicator.hpp"

namespace ladder {

class Averager {
 public:
  virtual ~Averager() = default;

  // To be called before the values of a round are computed: who takes part? An elastic averager may
  // replace this worker's whole state by that of another one here, which start()'s values must then
  // come from. All ranks of a group take part always; they have nothing to ask.
  virtual void form_quorum() {}

  // Starts to add up `values` [n] over the workers; nobody may touch them until finish() returns.
  // One average is in flight at a time.
  virtual void start(at::Tensor values) = 0;
  // Waits for it. Then `values` hold the sum over those that took part, added up in the order of the
  // workers, divided by their number: the same bits for each of them. Returns that number, or
  // nothing if the round has failed, for all of them; then the values mean nothing.
  virtual std::optional<int> finish() = 0;
};

// All ranks of a group, which take part always: without them no operation ends. 2(N−1)/N · 4 bytes
// sent per value. Lifetime: the communicator outlives it.
class GroupAverager final : public Averager {
 public:
  explicit GroupAverager(Communicator& comm) : comm_(comm) {}
  void start(at::Tensor values) override;
  std::optional<int> finish() override;

 private:
  Communicator& comm_;
  at::Tensor values_;
  WorkPtr sum_;
};

}  // namespace ladder
