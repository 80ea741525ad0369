// Ranks as threads of this process: no launcher, one address space, one debugger.
//
// Their communicators are those of message_communicator.hpp, so the sums have the same bits as
// between processes, and the same bytes are counted. A message is copied once, by its receiver: a
// send is done when its receiver has called recv and makes progress, and never before. Waiting
// sleeps.
//
// No rank waits forever for one that will not come; it gets a CheckError that names that rank: once
// a rank has failed, from every operation that is not done, and every new one; once a rank has
// returned, from those in which it was to take part. Ranks that differ in their calls are told as
// by other transports, and all of them by --check-collectives, which is on where trainers run as
// threads.
#pragma once

#include <functional>

#include "common/comm/communicator.hpp"

namespace ladder {

// Runs `body` on this many threads at once, each with a communicator of its own and so many compute
// threads, and returns when all have returned. `body` is shared: what it captures by reference, all
// ranks see. A debugger shows the threads as "rank 0", "rank 1", ….
//
// If a rank throws, the others get a CheckError from the operation that they wait for, or start
// next. Throws what the first rank threw, with its rank in front: a UsageError as such, any other
// std::exception as a CheckError, anything else as it is.
void run_as_threads(int num_ranks, const std::function<void(Communicator&)>& body,
                    int num_compute_threads = 1);

}  // namespace ladder
