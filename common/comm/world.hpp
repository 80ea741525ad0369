// The process's life in a launcher: from the start of MPI, or of torchrun's store, to the end, and
// the communicator of all ranks.
//
// main() owns one World and passes `Communicator&` to all other code. A process that was started
// without a launcher is a world of one rank and needs no MPI.
#pragma once

#include <functional>
#include <memory>

#include "common/comm/communicator.hpp"
#include "common/comm/link.hpp"
#include "common/comm/nccl/nccl_options.hpp"
#include "common/comm/transport.hpp"

namespace ladder {

class World {
 public:
  // Collective with mpi and nccl. Throws UsageError for `self` under a launcher of several ranks,
  // for `mpi` in a build without it, and if torchrun started several ranks, since it starts no MPI;
  // for `store` under any other launcher, which serves none; CheckError for `threads` and
  // `simulated`, whose communicator is given instead. With links, the communicator is paced by
  // them; throws UsageError if the ranks are on several machines.
  //
  // With a device of type CUDA, each rank gets the GPU of its local rank, in turns if there are
  // fewer, and its communicator carries tensors there as well: through NCCL, which mpi or store
  // helps to start, or staged through host memory.
  // Throws UsageError for nccl on the CPU, and where ranks would have to share a GPU.
  explicit World(Transport transport, const Links& links = {}, at::Device device = at::kCPU,
                 const NcclOptions& nccl = {});
  // A world of this group, for programs that have started their ranks themselves: it neither starts
  // nor ends MPI. `transport` is what carries the group's messages, not kAuto. Its local_rank() is
  // the rank for threads, otherwise 0, and all ranks are on one machine.
  World(std::unique_ptr<Communicator> comm, Transport transport);
  // Ends MPI if this World started it, which waits for the other ranks to do the same; a store may
  // wait as well (store_communicator.hpp). While an exception unwinds the stack, it waits for
  // nobody, and the launcher ends the job. Communicators must be destroyed first.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Communicator& comm();
  // From now on, comm() is what `wrap` makes of it, and references to the old one are not to be
  // used. Of several decorators, the last one is called first.
  void decorate(
      const std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)>& wrap);
  Transport transport() const;  // kAuto is resolved
  int local_rank() const;       // index on this machine
  // Which machine each rank is on. Machines are numbered from 0 by their lowest ranks: {0, 1, 0, 1}
  // if a launcher deals out ranks in turns. Collective, blocking: an all_gather, or nothing if all
  // ranks are on one machine.
  std::vector<int> machine_of_rank();
  // Ends all ranks with this exit code, whatever started them. For a rank that failed, so that the
  // others do not wait for it. MPI ends them at once. With a store, this process ends, those that
  // wait for others throw within about a second, and torchrun ends the rest. With threads this ends
  // the process; a rank that throws instead ends only its group (run_as_threads.hpp).
  [[noreturn]] void abort(int exit_code);

 private:
  struct Process;
  std::unique_ptr<Process> process_;
};

}  // namespace ladder
