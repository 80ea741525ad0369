#include "common/comm/mpi/mpi_process.hpp"

#include <mpi.h>

#include <cstdlib>
#include <exception>

#include "common/comm/mpi/mpi_group.hpp"
#include "common/core/check.hpp"

namespace ladder {

MpiProcess::MpiProcess() : exceptions_at_start_(std::uncaught_exceptions()) {
  int is_running = 0;
  check_mpi(MPI_Initialized(&is_running), "MPI_Initialized");
  int level = MPI_THREAD_SINGLE;
  if (is_running != 0) {
    check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
  } else {
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
    is_ours_ = true;
  }
  // Gradient hooks run on autograd's thread, so several threads call MPI, one at a time.
  check(level >= MPI_THREAD_SERIALIZED, "this MPI provides thread level ", level,
        ", but MPI_THREAD_SERIALIZED (", MPI_THREAD_SERIALIZED, ") is required");
  MPI_Comm machine = MPI_COMM_NULL;
  check_mpi(
      MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, /*key=*/0, MPI_INFO_NULL, &machine),
      "MPI_Comm_split_type");
  check_mpi(MPI_Comm_rank(machine, &local_rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(machine, &num_local_ranks_), "MPI_Comm_size");
  check_mpi(MPI_Comm_free(&machine), "MPI_Comm_free");
}

MpiProcess::~MpiProcess() {
  // A rank that exits with an exception must not wait in MPI_Finalize for ranks that wait for it.
  if (!is_ours_ || std::uncaught_exceptions() > exceptions_at_start_) return;
  // Others may still fail. Open MPI 4.1 hangs if a rank aborts while another is in MPI_Finalize.
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
}

void MpiProcess::abort(int exit_code) {
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);  // MPI_Abort is not guaranteed to end this process
}

}  // namespace ladder
