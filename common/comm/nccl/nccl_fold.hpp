// Sums in rank order over NCCL, which itself adds up in an order of its own.
//
//   scatter and fold   every rank sends slice q of its tensor to rank q, which adds up what arrives
//                      in rank order: a reduce_scatter
//   gather             every rank sends its slice to all others: with the former, an all_reduce
#pragma once

#include <nccl.h>

#include <cstddef>

#include "common/comm/rank_order_fold.hpp"

namespace ladder {

// Both only queue their work, on the slices of a tensor on the GPU, with room; its memory and the
// room's must stay until the stream is done with them. The sum of this rank's slice goes to
// `target`, which may be that slice. Throws CheckError with NCCL's message.
void scatter_and_fold(const RankSlices& slices, std::byte* target, ncclComm_t comm,
                      cudaStream_t stream);
void gather(const RankSlices& slices, ncclComm_t comm, cudaStream_t stream);

}  // namespace ladder
