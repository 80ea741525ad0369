#include "common/comm/nccl/nccl_fold.hpp"

#include <ATen/ops/empty.h>

#include <utility>

#include "common/comm/nccl/fold_kernel.hpp"
#include "common/comm/nccl/nccl_calls.hpp"
#include "common/core/memory_ledger.hpp"

namespace ladder {
namespace {

void send_bytes(const std::byte* from, std::size_t bytes, int peer, ncclComm_t comm,
                cudaStream_t stream) {
  if (bytes > 0) check_nccl(ncclSend(from, bytes, ncclUint8, peer, comm, stream), "ncclSend");
}
void recv_bytes(std::byte* to, std::size_t bytes, int peer, ncclComm_t comm, cudaStream_t stream) {
  if (bytes > 0) check_nccl(ncclRecv(to, bytes, ncclUint8, peer, comm, stream), "ncclRecv");
}

}  // namespace

NcclFold::NcclFold(at::Tensor tensor, int size, int rank)
    : tensor_(std::move(tensor)), rank_(rank) {
  for (int r = 0; r < size; ++r) ranges_.push_back(chunk_of(tensor_.numel(), size, r));
  const MemoryScope scope(MemoryCategory::kCommunication);
  scratch_ = at::empty({(size - 1) * range(rank).numel}, tensor_.options());
}

std::byte* NcclFold::chunk(int rank) const {
  return data_of(tensor_) + bytes(range(rank).begin);
}

std::byte* NcclFold::arriving(int peer) const {
  return data_of(scratch_) + bytes((peer < rank_ ? peer : peer - 1) * range(rank_).numel);
}

// As one group of NCCL's, in which neither a send nor a receive has to come first.
template <class SendAndRecv>
void NcclFold::with_all_peers(SendAndRecv send_and_recv) const {
  check_nccl(ncclGroupStart(), "ncclGroupStart");
  try {
    for (int peer = 0; peer < static_cast<int>(ranges_.size()); ++peer)
      if (peer != rank_) send_and_recv(peer);
  } catch (...) {
    ncclGroupEnd();  // NCCL aborts no communicator inside a group
    throw;
  }
  check_nccl(ncclGroupEnd(), "ncclGroupEnd");
}

void NcclFold::scatter_and_fold(std::byte* target, ncclComm_t comm, cudaStream_t stream) const {
  with_all_peers([&](int peer) {
    send_bytes(chunk(peer), chunk_bytes(peer), peer, comm, stream);
    recv_bytes(arriving(peer), chunk_bytes(rank_), peer, comm, stream);
  });
  std::vector<const std::byte*> pieces;  // of the own chunk, in rank order
  for (int r = 0; r < static_cast<int>(ranges_.size()); ++r)
    pieces.push_back(r == rank_ ? own_chunk() : arriving(r));
  fold_on_gpu(pieces, target, tensor_.scalar_type(), range(rank_).numel, stream);
}

void NcclFold::gather(ncclComm_t comm, cudaStream_t stream) const {
  with_all_peers([&](int peer) {
    send_bytes(own_chunk(), chunk_bytes(rank_), peer, comm, stream);
    recv_bytes(chunk(peer), chunk_bytes(peer), peer, comm, stream);
  });
}

}  // namespace ladder
