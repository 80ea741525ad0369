// Advances all started operations of the process, whichever of them is being waited for.
//
// One rank's fold is what another rank waits for. So a rank that waits for operation B must also
// advance A; otherwise two ranks that wait for A and B in different orders would wait forever. For
// the same reason all communicators of a World (the first and those split off) share one engine.
//
// An operation's error is thrown by whichever call advanced it.
#pragma once

#include <memory>
#include <vector>

#include "common/comm/communicator.hpp"
#include "common/comm/messages/message_operation.hpp"

namespace ladder {

class OperationEngine : public std::enable_shared_from_this<OperationEngine> {
 public:
  OperationEngine() = default;
  ~OperationEngine();
  OperationEngine(const OperationEngine&) = delete;
  OperationEngine& operator=(const OperationEngine&) = delete;

  WorkPtr start(std::shared_ptr<MessageOperation> operation);  // with messages already posted
  void advance();  // all operations once, without waiting
  void wait_for(MessageOperation& operation);
  // Waits until the tag of the group's next collective is free: its last user must be done.
  void wait_for_free_tag(const MessageGroup& group);

 private:
  std::vector<std::shared_ptr<MessageOperation>> in_flight_;
};

}  // namespace ladder
