// Ranks as threads of this process: no launcher, one address space, one debugger.
#pragma once

#include <functional>

#include "common/comm/communicator.hpp"

namespace ladder {

// Runs `body` on this many threads at once, each with a communicator of its own
// (thread_communicator.hpp) and so many compute threads, and returns when all have returned. `body`
// is shared: what it captures by reference, all ranks see. A debugger shows the threads as "rank
// 0", "rank 1", ….
//
// If a rank throws, the others get a CheckError from the operation that they wait for, or start
// next. Throws what the first rank threw, with its rank in front: a UsageError as such, any other
// std::exception as a CheckError, anything else as it is.
void run_as_threads(int num_ranks, const std::function<void(Communicator&)>& body,
                    int num_compute_threads = 1);

}  // namespace ladder
