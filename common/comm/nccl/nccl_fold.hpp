// Sums in rank order over NCCL, which itself adds up in an order of its own.
//
//   scatter and fold   every rank sends chunk q of its tensor to rank q, which adds up what arrives
//                      in rank order: a reduce_scatter
//   gather             every rank sends its chunk to all others: with the former, an all_reduce
#pragma once

#include <nccl.h>

#include <cstddef>

#include "common/comm/rank_order_fold.hpp"

namespace ladder {

// Both only queue their work, on the chunks of a tensor on the GPU, with room; its memory and the
// room's must stay until the stream is done with them. The sum of this rank's chunk goes to
// `target`, which may be that chunk. Throws CheckError with NCCL's message.
void scatter_and_fold(const RankChunks& chunks, std::byte* target, ncclComm_t comm,
                      cudaStream_t stream);
void gather(const RankChunks& chunks, ncclComm_t comm, cudaStream_t stream);

}  // namespace ladder
