// The process's life in a launcher: from MPI's start to its end, and the communicator of all ranks.
//
// main() owns one World; everything else is handed `Communicator&`. A process that no launcher started is a
// world of one rank and needs no MPI.
#pragma once

#include <memory>
#include <string>

#include "common/comm/communicator.hpp"

namespace ladder {

enum class Transport { kAuto, kSelf, kMpi };  // kAuto: mpi where a launcher started several ranks, else self
Transport parse_transport(const std::string& name);  // "auto", "self", "mpi"; anything else is a UsageError

class World {
 public:
  // Collective with mpi. Throws UsageError for `self` under a launcher of several ranks, and for `mpi` in a build
  // without it.
  explicit World(Transport transport);
  ~World();  // ends MPI if this World started it; after an exception call abort() first
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Communicator& comm();
  int local_rank() const;  // index on this machine
  // Ends all ranks at once with this exit code: for a rank that failed, as the others must not wait for it.
  [[noreturn]] void abort(int exit_code);

 private:
  struct Process;
  std::unique_ptr<Process> process_;
};

// How many ranks the launcher started, from its environment (Open MPI, MPICH, Slurm), before MPI itself starts. 1 without one.
int launched_ranks();
int launched_rank();  // this process's rank among them

}  // namespace ladder
