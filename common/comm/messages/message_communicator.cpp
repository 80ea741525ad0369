#include "common/comm/messages/message_communicator.hpp"

#include <utility>

#include "common/comm/argument_checks.hpp"
#include "common/comm/messages/message_operation.hpp"
#include "common/comm/messages/operation_engine.hpp"

namespace ladder {

MessageCommunicator::MessageCommunicator(std::shared_ptr<MessageGroup> group,
                                         std::shared_ptr<OperationEngine> engine)
    : group_(std::move(group)), engine_(std::move(engine)) {}

WorkPtr MessageCommunicator::start(const Operation& operation) {
  check_operation(operation, *this, Reach::kCpu, group_->num_tags);
  if (!operation.is_message()) engine_->wait_for_free_tag(*group_);
  ++(*group_->meter)[operation.kind].calls;
  return engine_->start(std::make_shared<MessageOperation>(group_, operation));
}

void MessageCommunicator::meet() {
  engine_->start(std::make_shared<MessageOperation>(group_, Operation{CommOp::kBarrier}))->wait();
}

}  // namespace ladder
