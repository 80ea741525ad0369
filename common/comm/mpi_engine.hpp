// Moves every started operation of the process on, whichever of them is being waited for.
//
// One rank's fold is what another rank waits for. So a rank that waits for operation B must go on
// with A as well: else two ranks that wait for A and B in different orders would wait for ever. All
// communicators of a World (the first and those split off) share one engine for the same reason.
//
// An operation's error comes out of whichever call moved it on.
#pragma once

#include <memory>
#include <vector>

#include "common/comm/communicator.hpp"
#include "common/comm/mpi_operation.hpp"

namespace ladder {

class MpiEngine : public std::enable_shared_from_this<MpiEngine> {
 public:
  MpiEngine() = default;
  ~MpiEngine();
  MpiEngine(const MpiEngine&) = delete;
  MpiEngine& operator=(const MpiEngine&) = delete;

  WorkPtr start(std::shared_ptr<MpiOperation> operation);  // its messages are posted already
  void advance();                                          // one round over all, without waiting
  void wait_for(const MpiOperation& operation);
  // Waits until the tag of the group's next collective is free: the one that had it last is done.
  void wait_for_free_tag(const MpiGroup& group);

 private:
  std::vector<std::shared_ptr<MpiOperation>> in_flight_;
};

}  // namespace ladder
