#include "common/comm/nccl/staged_communicator.hpp"

#include <ATen/ops/empty.h>

#include <utility>

#include "common/comm/argument_checks.hpp"
#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"

namespace ladder {
namespace {

// Host memory of the tensor's shape and type. The GPU can copy from pinned memory while the CPU goes
// on; libtorch keeps that memory until the copy is done.
at::Tensor host_memory_for(const at::Tensor& tensor) {
  const MemoryScope scope(MemoryCategory::kCommunication);
  return at::empty(tensor.sizes(),
                   at::TensorOptions().dtype(tensor.scalar_type()).pinned_memory(tensor.is_cuda()));
}

void copy_to_host(const at::Tensor& tensor, const at::Tensor& host) {
  host.copy_(tensor.detach());  // waits for the GPU
}

at::Tensor on_host(const at::Tensor& tensor) {
  at::Tensor host = host_memory_for(tensor);
  copy_to_host(tensor, host);
  return host;
}

// The inner operation on host memory, and what is still to be done when it has ended.
class StagedWork final : public Work {
 public:
  StagedWork(WorkPtr inner, at::Tensor result, at::Tensor target)
      : inner_(std::move(inner)), result_(std::move(result)), target_(std::move(target)) {}

  bool test() override {
    if (!inner_->test()) return false;
    copy_result();
    return true;
  }

  void wait() override {
    inner_->wait();
    copy_result();
  }

 private:
  void copy_result() {
    // variable_data() has a version counter of its own.
    if (target_.defined()) target_.variable_data().copy_(result_, /*non_blocking=*/true);
    target_.reset();
    result_.reset();
  }

  WorkPtr inner_;
  at::Tensor result_;  // on the host
  at::Tensor target_;  // undefined if nothing is to be copied back
};

WorkPtr staged(WorkPtr inner, at::Tensor result, at::Tensor target = {}) {
  return std::make_unique<StagedWork>(std::move(inner), std::move(result), std::move(target));
}

}  // namespace

StagedCommunicator::StagedCommunicator(std::unique_ptr<Communicator> inner, Stage stage)
    : inner_(std::move(inner)), stage_(stage) {
  check(inner_ != nullptr, "a staged communicator needs one that carries its tensors");
}

bool StagedCommunicator::is_staged(const at::Tensor& tensor) const {
  return tensor.is_cuda() || stage_ == Stage::kEverything;
}

WorkPtr StagedCommunicator::all_reduce(at::Tensor inout) {
  check_reducible(*this, CommOp::kAllReduce, inout, Reach::kAnyDevice);
  if (!is_staged(inout)) return inner_->all_reduce(inout);
  const at::Tensor host = on_host(inout);
  return staged(inner_->all_reduce(host), host, inout);
}

WorkPtr StagedCommunicator::reduce_scatter(const at::Tensor& full, at::Tensor shard) {
  check_reducible(*this, CommOp::kReduceScatter, full, Reach::kAnyDevice);
  check_shards(*this, CommOp::kReduceScatter, full, shard, Reach::kAnyDevice);
  if (!is_staged(full)) return inner_->reduce_scatter(full, shard);
  const at::Tensor host = on_host(full);
  const at::Tensor sum = host.flatten().narrow(0, rank() * shard.numel(), shard.numel());
  return staged(inner_->reduce_scatter(host, sum), sum.view(shard.sizes()), shard);
}

WorkPtr StagedCommunicator::all_gather(const at::Tensor& shard, at::Tensor full) {
  check_shards(*this, CommOp::kAllGather, full, shard, Reach::kAnyDevice);
  if (!is_staged(full)) return inner_->all_gather(shard, full);
  const at::Tensor host = host_memory_for(full);
  const at::Tensor own = host.flatten().narrow(0, rank() * shard.numel(), shard.numel());
  copy_to_host(shard, own.view(shard.sizes()));
  return staged(inner_->all_gather(own, host), host, full);
}

WorkPtr StagedCommunicator::broadcast(at::Tensor inout, int root) {
  check_movable(*this, CommOp::kBroadcast, inout, Reach::kAnyDevice);
  if (!is_staged(inout)) return inner_->broadcast(inout, root);
  const bool is_root = rank() == root;
  const at::Tensor host = is_root ? on_host(inout) : host_memory_for(inout);
  return staged(inner_->broadcast(host, root), host, is_root ? at::Tensor() : inout);
}

WorkPtr StagedCommunicator::send(const at::Tensor& tensor, int peer, int tag) {
  check_movable(*this, CommOp::kSend, tensor, Reach::kAnyDevice);
  if (!is_staged(tensor)) return inner_->send(tensor, peer, tag);
  const at::Tensor host = on_host(tensor);
  return staged(inner_->send(host, peer, tag), host);
}

WorkPtr StagedCommunicator::recv(at::Tensor tensor, int peer, int tag) {
  check_movable(*this, CommOp::kRecv, tensor, Reach::kAnyDevice);
  if (!is_staged(tensor)) return inner_->recv(tensor, peer, tag);
  const at::Tensor host = host_memory_for(tensor);
  return staged(inner_->recv(host, peer, tag), host, tensor);
}

std::unique_ptr<Communicator> StagedCommunicator::split(int color, int key) {
  std::unique_ptr<Communicator> part = inner_->split(color, key);
  if (part == nullptr) return nullptr;
  return std::make_unique<StagedCommunicator>(std::move(part), stage_);
}

}  // namespace ladder
