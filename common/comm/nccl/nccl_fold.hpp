// Sums in rank order over NCCL, which itself adds up in an order of its own.
//
//   scatter and fold   every rank sends chunk q of its tensor to rank q, which adds up what arrives
//                      in rank order: a reduce_scatter
//   gather             every rank sends its chunk to all others: with the former, an all_reduce
//
// A chunk is an N-th of the tensor; the first numel mod N are one element longer.
#pragma once

#include <ATen/core/Tensor.h>
#include <nccl.h>

#include <cstddef>
#include <vector>

#include "common/comm/rank_order_fold.hpp"

namespace ladder {

class NcclFold {
 public:
  // For a tensor on the GPU, of rank `rank` of `size`. Allocates (size − 1) · own chunk of scratch,
  // category communication; it must stay until the stream is done with it.
  NcclFold(at::Tensor tensor, int size, int rank);
  const at::Tensor& scratch() const { return scratch_; }

  // Both only queue their work. scatter_and_fold() writes this rank's chunk of the sum to `target`,
  // which may be own_chunk(). Throws CheckError with NCCL's message.
  void scatter_and_fold(std::byte* target, ncclComm_t comm, cudaStream_t stream) const;
  void gather(ncclComm_t comm, cudaStream_t stream) const;
  std::byte* own_chunk() const { return chunk(rank_); }

 private:
  const ElementRange& range(int rank) const { return ranges_[static_cast<std::size_t>(rank)]; }
  std::size_t bytes(std::int64_t numel) const {
    return static_cast<std::size_t>(numel) * tensor_.element_size();
  }
  std::size_t chunk_bytes(int rank) const { return bytes(range(rank).numel); }
  std::byte* chunk(int rank) const;
  std::byte* arriving(int peer) const;  // in the scratch: the peer's part of the own chunk
  template <class SendAndRecv>
  void with_all_peers(SendAndRecv send_and_recv) const;

  at::Tensor tensor_;
  int rank_;
  std::vector<ElementRange> ranges_;  // of every rank's chunk
  at::Tensor scratch_;
};

}  // namespace ladder
