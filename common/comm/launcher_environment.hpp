// What a launcher tells the processes that it starts, in their environment.
#pragma once

#include <string>

namespace ladder {

// What started this process. kPmi is MPICH, Intel MPI, or srun with --mpi=pmi2; kSlurm any other
// srun.
enum class Launcher { kNone, kOpenMpi, kPmi, kSlurm, kTorchrun };

// What the launcher says in the environment, read before MPI starts: the number of ranks, this
// process's rank, and its index on this machine. Without a launcher: kNone, 1, 0 and 0. Throws
// UsageError if a variable is missing or no number.
Launcher launcher();
int launched_ranks();
int launched_rank();
int launched_local_rank();
int launched_local_ranks();  // on this machine; 1 where the launcher does not say

std::string host_name();  // of this machine

// Where ranks started by torchrun meet: MASTER_ADDR and MASTER_PORT. Throws UsageError if torchrun
// set none, CheckError if torchrun did not start this process.
struct MeetingPoint {
  std::string address;
  int port = 0;
  bool has_store = false;  // torchrun serves one there
  int num_restarts = 0;    // of all ranks, after one of them had failed
};
MeetingPoint torchrun_meeting_point();

}  // namespace ladder
