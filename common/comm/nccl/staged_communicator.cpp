#include "common/comm/nccl/staged_communicator.hpp"

#include <ATen/ops/empty.h>

#include <utility>

#include "common/comm/argument_checks.hpp"
#include "common/core/memory_ledger.hpp"

namespace ladder {
namespace {

// Host memory of the tensor's shape and type. The GPU can copy from pinned memory while the CPU
// goes on; libtorch keeps that memory until the copy is done.
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

}  // namespace

WorkPtr StagedCommunicator::start(const Operation& operation) {
  check_operation(operation, *this, Reach::kAnyDevice);
  const auto& [kind, tensor, shard, peer, tag, where] = operation;
  const bool is_staged =
      !operation.is_barrier() && (tensor.is_cuda() || staged_ == Staged::kEverything);
  if (!is_staged) return inner_.start(operation);

  const bool is_root = kind == CommOp::kBroadcast && peer == rank();
  const bool is_read = operation.is_sum() || kind == CommOp::kSend || is_root;
  Operation staged = operation;
  staged.tensor = is_read ? on_host(tensor) : host_memory_for(tensor);
  if (operation.has_shard()) {
    staged.shard = staged.tensor.flatten()
                       .narrow(0, rank() * shard.numel(), shard.numel())
                       .view(shard.sizes());
  }
  if (kind == CommOp::kAllGather) copy_to_host(shard, staged.shard);
  WorkPtr work = inner_.start(staged);
  if (kind == CommOp::kReduceScatter)
    return std::make_unique<StagedWork>(std::move(work), staged.shard, shard);
  const bool is_written = kind != CommOp::kSend && !is_root;
  return std::make_unique<StagedWork>(std::move(work), staged.tensor,
                                      is_written ? tensor : at::Tensor());
}

std::unique_ptr<Communicator> StagedCommunicator::split(int color, int key) {
  std::unique_ptr<Communicator> part = inner_.split(color, key);
  if (part == nullptr) return nullptr;
  return std::make_unique<StagedCommunicator>(std::move(part), staged_);
}

}  // namespace ladder
