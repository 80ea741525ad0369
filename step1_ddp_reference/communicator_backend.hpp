// Our Communicator as libtorch's own distributed code wants it: a c10d::ProcessGroup.
//
// The Reducer and broadcast_coalesced ask for two collectives, all_reduce (SUM) and broadcast; any
// other is refused by libtorch in the words "Backend ladder does not support …". An operation is
// waited for before the call returns, so the c10d::Work that comes back is finished and its future
// holds the tensors. That is right, and slow: DDP over a real backend goes on computing meanwhile.
//
// Local: making the group asks nobody; its calls are collective over `comm`.
// Lifetime: `comm` outlives the group.
// Threads:  the calls run in the thread that calls backward(), as Communicator demands.
// Throws:   CheckError from a call for another reduction than SUM or with several tensors; and what
//           `comm` throws.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "common/comm/communicator.hpp"

namespace ladder {

c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(Communicator& comm);

}  // namespace ladder
