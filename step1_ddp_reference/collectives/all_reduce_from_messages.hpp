// An all-reduce made of messages from rank to rank, as every transport's own is.
//
// It sums over the ranks and leaves the sum in `inout`, on every rank. Sums are those of a tree,
// elementwise in the tensor's own dtype, so all ranks get the same bits: those of
// Communicator::all_reduce. The tree splits N summands at the largest power of two below N, and each
// part in the same way:
//
//   3 ranks   (x0 + x1) + x2               5 ranks   ((x0 + x1) + (x2 + x3)) + x4
//   4 ranks   (x0 + x1) + (x2 + x3)        6 ranks   ((x0 + x1) + (x2 + x3)) + (x4 + x5)
//
// Two rounds. The tensor is cut into one slice for each rank (slice_of in
// common/comm/slice.hpp). First each rank gets all pieces of its own slice, and adds them
// up: the reduce-scatter. Then it sends the sum to all others: the all-gather.
//
// inout:   any shape, contiguous, with the same numel and dtype on every rank and without a
//          gradient of its own. Any numel, also fewer elements than ranks, 1 or 0.
// Calls:   comm.send and comm.recv, with no tag but 0 and 1, and no collective. Every operation has
//          been waited for when the call returns.
// Traffic: bytes and messages of all_reduce_traffic(), counted as sends
//          (common/comm/traffic_theory.hpp).
// Memory:  N−1 slices of scratch at most, on N ranks; the odd scalar does not count.
// Waits:   it needs no transport that buffers messages. The receives of a round are started
//          before one of its sends is waited for, so a send may wait for its receiver.
// Throws:  CheckError, if one of its messages does.
//
// Collective, blocking. No other message with these tags may be on its way in `comm`.
#pragma once

#include <ATen/core/Tensor.h>

#include "common/comm/communicator.hpp"

namespace ladder {

void all_reduce_from_messages(const at::Tensor& inout, Communicator& comm);

}  // namespace ladder
