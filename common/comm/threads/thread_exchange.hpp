// What happens at a meeting of threads: the operation that they have called, done by one rank for
// all.
//
// The parts of a collective are in rank order; those of a message are the sender's and the
// receiver's. They are compared first. Where ranks disagree it writes to the `error` of
// those that must throw, naming another rank and both values, and leaves their tensors alone.
//
// Memory: none, except for a reduce_scatter in place on three or more ranks: one shard of scratch
//         (category: communication).
// Threads: the caller sees to it that nobody else uses the tensors.
#pragma once

#include <vector>

#include "common/comm/threads/thread_meeting.hpp"

namespace ladder {

void exchange(std::vector<ThreadPart>& parts);

// True if all ranks have called the same operation; else every part gets an error.
bool is_same_call(std::vector<ThreadPart>& parts);

}  // namespace ladder
