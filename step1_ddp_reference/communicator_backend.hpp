// Wraps our Communicator in the interface that libtorch's distributed code expects, a
// c10d::ProcessGroup.
//
// The Reducer and broadcast_coalesced use two collectives, all_reduce (SUM) and broadcast; libtorch
// refuses any other with "Backend ladder does not support …". Each call waits for its operation, so
// the c10d::Work that it returns is finished and its future holds the tensors. This is correct but
// slow: DDP over a real backend keeps computing meanwhile.
//
// Local:    making the group involves no other rank; its calls are collective over `comm`.
// Lifetime: `comm` outlives the group.
// Threads:  the calls run in the thread that calls backward(), as Communicator requires.
// Throws:   CheckError from a call with a reduction other than SUM or with several tensors; also
//           what `comm` throws.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "common/comm/communicator.hpp"

namespace ladder {

c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(Communicator& comm);

}  // namespace ladder
