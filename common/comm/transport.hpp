// What carries messages between ranks, as a name.
#pragma once

namespace ladder {

// kAuto: where a launcher started several ranks, store if it is torchrun, else mpi; self for one
// rank; on GPUs nccl if each rank has one. kThreads: run_as_threads.hpp.
// kSimulated: simulated_communicator.hpp.
enum class Transport { kAuto, kSelf, kMpi, kThreads, kStore, kNccl, kSimulated };

// "auto", "self", "mpi", "threads", "store", "nccl", "simulated".
const char* to_string(Transport transport);

}  // namespace ladder
