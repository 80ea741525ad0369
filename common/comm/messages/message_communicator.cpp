#include "common/comm/messages/message_communicator.hpp"

#include <utility>

#include "common/comm/argument_checks.hpp"
#include "common/comm/messages/message_operation.hpp"
#include "common/comm/messages/operation_engine.hpp"

namespace ladder {

MessageCommunicator::MessageCommunicator(std::shared_ptr<MessageGroup> group,
                                         std::shared_ptr<OperationEngine> engine)
    : group_(std::move(group)), engine_(std::move(engine)) {}

std::shared_ptr<MessageOperation> MessageCommunicator::new_collective(CommOp op) {
  engine_->wait_for_free_tag(*group_);
  return std::make_shared<MessageOperation>(group_, op);
}

WorkPtr MessageCommunicator::all_reduce(at::Tensor inout) {
  check_reducible(*this, CommOp::kAllReduce, inout);
  auto operation = new_collective(CommOp::kAllReduce);
  operation->start_all_reduce(inout);
  return engine_->start(std::move(operation));
}

WorkPtr MessageCommunicator::reduce_scatter(const at::Tensor& full, at::Tensor shard) {
  check_reducible(*this, CommOp::kReduceScatter, full);
  check_shards(*this, CommOp::kReduceScatter, full, shard);
  auto operation = new_collective(CommOp::kReduceScatter);
  operation->start_reduce_scatter(full, shard);
  return engine_->start(std::move(operation));
}

WorkPtr MessageCommunicator::all_gather(const at::Tensor& shard, at::Tensor full) {
  check_shards(*this, CommOp::kAllGather, full, shard);
  auto operation = new_collective(CommOp::kAllGather);
  operation->start_all_gather(shard, full);
  return engine_->start(std::move(operation));
}

WorkPtr MessageCommunicator::broadcast(at::Tensor inout, int root) {
  check_movable(*this, CommOp::kBroadcast, inout);
  check_root(*this, CommOp::kBroadcast, root);
  auto operation = new_collective(CommOp::kBroadcast);
  operation->start_broadcast(inout, root);
  return engine_->start(std::move(operation));
}

WorkPtr MessageCommunicator::send(const at::Tensor& tensor, int peer, int tag) {
  check_movable(*this, CommOp::kSend, tensor);
  check_peer(*this, CommOp::kSend, peer);
  check_tag(*this, CommOp::kSend, tag, group_->num_tags);
  auto operation = std::make_shared<MessageOperation>(group_, CommOp::kSend);
  operation->start_send(tensor, peer, tag);
  return engine_->start(std::move(operation));
}

WorkPtr MessageCommunicator::recv(at::Tensor tensor, int peer, int tag) {
  check_movable(*this, CommOp::kRecv, tensor);
  check_peer(*this, CommOp::kRecv, peer);
  check_tag(*this, CommOp::kRecv, tag, group_->num_tags);
  auto operation = std::make_shared<MessageOperation>(group_, CommOp::kRecv);
  operation->start_recv(tensor, peer, tag);
  return engine_->start(std::move(operation));
}

void MessageCommunicator::barrier() {
  auto operation = std::make_shared<MessageOperation>(group_, CommOp::kBarrier);
  operation->start_barrier();
  engine_->start(std::move(operation))->wait();
}

void MessageCommunicator::meet() {
  engine_->start(MessageOperation::uncounted_barrier(group_))->wait();
}

}  // namespace ladder
