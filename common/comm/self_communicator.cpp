#include "common/comm/self_communicator.hpp"

#include "common/comm/argument_checks.hpp"

namespace ladder {
namespace {

class FinishedWork final : public Work {
 public:
  bool test() override { return true; }
  void wait() override {}
};

// Not with copy_(), because no autograd version counter changes, as with the other transports:
// variable_data() has one of its own. A shard may be its own piece of full.
void copy_bytes(const at::Tensor& from, const at::Tensor& to) {
  if (from.const_data_ptr() == to.const_data_ptr()) return;
  to.variable_data().view({-1}).copy_(from.variable_data().view({-1}));
}

}  // namespace

WorkPtr SelfCommunicator::done(CommOp op) {
  ++(*meter_)[op].calls;
  return std::make_unique<FinishedWork>();
}

WorkPtr SelfCommunicator::all_reduce(at::Tensor inout) {
  check_reducible(*this, CommOp::kAllReduce, inout, Reach::kAnyDevice);
  return done(CommOp::kAllReduce);
}

WorkPtr SelfCommunicator::reduce_scatter(const at::Tensor& full, at::Tensor shard) {
  check_reducible(*this, CommOp::kReduceScatter, full, Reach::kAnyDevice);
  check_shards(*this, CommOp::kReduceScatter, full, shard, Reach::kAnyDevice);
  copy_bytes(full, shard);
  return done(CommOp::kReduceScatter);
}

WorkPtr SelfCommunicator::all_gather(const at::Tensor& shard, at::Tensor full) {
  check_shards(*this, CommOp::kAllGather, full, shard, Reach::kAnyDevice);
  copy_bytes(shard, full);
  return done(CommOp::kAllGather);
}

WorkPtr SelfCommunicator::broadcast(at::Tensor inout, int root) {
  check_movable(*this, CommOp::kBroadcast, inout, Reach::kAnyDevice);
  check_root(*this, CommOp::kBroadcast, root);
  return done(CommOp::kBroadcast);
}

WorkPtr SelfCommunicator::send(const at::Tensor& tensor, int peer, int /*tag*/) {
  check_movable(*this, CommOp::kSend, tensor, Reach::kAnyDevice);
  check_peer(*this, CommOp::kSend, peer);  // always throws: no other rank exists
  return done(CommOp::kSend);
}

WorkPtr SelfCommunicator::recv(at::Tensor tensor, int peer, int /*tag*/) {
  check_movable(*this, CommOp::kRecv, tensor, Reach::kAnyDevice);
  check_peer(*this, CommOp::kRecv, peer);  // always throws
  return done(CommOp::kRecv);
}

void SelfCommunicator::barrier() {
  done(CommOp::kBarrier);
}

std::unique_ptr<Communicator> SelfCommunicator::split(int color, int /*key*/) {
  if (color < 0) return nullptr;
  auto part = std::make_unique<SelfCommunicator>();
  part->meter_ = meter_;
  return part;
}

}  // namespace ladder
