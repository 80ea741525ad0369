// A Communicator that carries out its operations as NCCL does on a GPU's streams: on each stream one
// after the other, in the order of the calls. An operation is not even started before the one before
// it is done. Nor is it before the one before it in the same group, on whichever stream that is.
//
// A rank has two streams, which all groups split from this one share: one for collectives, and one
// for send and recv (nccl_communicator.hpp). Over synchronous_world(), what completes here completes
// over NCCL.
//
// Lifetime: `inner` outlives this.
// Throws:   wait() throws CheckError if an operation is not done after `patience_s` times
//           time_scale(): ranks wait for each other in a circle.
#pragma once

#include <memory>
#include <utility>

#include "common/comm/forwarding_communicator.hpp"

namespace ladder {

class StreamOrder final : public ForwardingCommunicator {
 public:
  explicit StreamOrder(Communicator& inner, double patience_s = 60);

  WorkPtr start(const Operation& operation) override;
  std::unique_ptr<Communicator> split(int color, int key) override;

 private:
  struct Queued;
  class Streams;
  class QueuedWork;
  StreamOrder(std::unique_ptr<Communicator> inner, std::shared_ptr<Streams> streams)
      : ForwardingCommunicator(std::move(inner)), streams_(std::move(streams)) {}

  std::shared_ptr<Streams> streams_;
  std::shared_ptr<Queued> last_ = {};  // of this group
};

}  // namespace ladder
