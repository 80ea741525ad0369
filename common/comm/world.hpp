// The process's life in a launcher: from MPI's start to its end, and the communicator of all ranks.
//
// main() owns one World and passes `Communicator&` to all other code. A process that was started
// without a launcher is a world of one rank and needs no MPI.
#pragma once

#include <memory>
#include <string>

#include "common/comm/communicator.hpp"
#include "common/comm/paced_communicator.hpp"

namespace ladder {

enum class Transport {
  kAuto,
  kSelf,
  kMpi
};  // kAuto: mpi where a launcher started several ranks, else self
Transport parse_transport(
    const std::string& name);  // "auto", "self", "mpi"; anything else is a UsageError
const char* to_string(Transport transport);

class World {
 public:
  // Collective with mpi. Throws UsageError for `self` under a launcher of several ranks, and for
  // `mpi` in a build without it. With a link, the communicator is paced by it; throws UsageError if
  // the ranks are on several machines.
  explicit World(Transport transport, Link link = {});
  // A world of this group, for programs that have started their ranks themselves: it neither starts
  // nor ends MPI. Its transport() is kMpi for any group of several ranks; its local_rank() is 0.
  explicit World(std::unique_ptr<Communicator> comm);
  // Ends MPI if this World started it, which waits for the other ranks to do the same. While an
  // exception unwinds the stack, it leaves MPI alone, and the launcher ends the job. Communicators
  // must be destroyed first.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Communicator& comm();
  Transport transport() const;  // kSelf or kMpi: kAuto is resolved
  int local_rank() const;       // index on this machine
  // Ends all ranks at once with this exit code, whatever started them. For a rank that failed, so
  // that the others do not wait for it.
  [[noreturn]] void abort(int exit_code);

 private:
  struct Process;
  std::unique_ptr<Process> process_;
};

// The number of ranks that the launcher started, and this process's rank, read from the launcher's
// environment (Open MPI, MPICH, Slurm's srun) before MPI itself starts. 1 and 0 without a launcher.
// Throws UsageError if the variables are not numbers.
int launched_ranks();
int launched_rank();

}  // namespace ladder
