#include "common/comm/nccl/staged_communicator.hpp"

#include <ATen/ops/empty.h>

#include <utility>

#include "common/comm/argument_checks.hpp"
#include "common/comm/work_then.hpp"
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
  if (kind == CommOp::kSend || is_root) return work;
  const bool is_scattered = kind == CommOp::kReduceScatter;
  return std::make_unique<WorkThen>(std::move(work),
                                    [result = is_scattered ? staged.shard : staged.tensor,
                                     target = is_scattered ? shard : tensor] {
                                      // variable_data() has a version counter of its own.
                                      target.variable_data().copy_(result, /*non_blocking=*/true);
                                    });
}

std::unique_ptr<Communicator> StagedCommunicator::split(int color, int key) {
  std::unique_ptr<Communicator> part = inner_.split(color, key);
  if (part == nullptr) return nullptr;
  return std::make_unique<StagedCommunicator>(std::move(part), staged_);
}

}  // namespace ladder
