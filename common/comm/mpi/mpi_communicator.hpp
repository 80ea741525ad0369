// The MPI transport: message_communicator.hpp with MPI's messages.
//
// Each collective in flight has a tag of its own; send and recv use a separate MPI communicator. A
// message of the wrong length is detected and reported by the rank that receives it. A barrier is
// MPI's own.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>

#include "common/comm/communicator.hpp"
#include "common/comm/messages/message_group.hpp"

namespace ladder {

// For tests, which set the numbers to small values. Values above MPI's own limits are reduced to
// those.
struct MpiLimits {
  std::int64_t message_bytes = kLongestMessageBytes;  // longer messages travel in pieces
  std::int64_t num_tags = std::numeric_limits<int>::max();
  // A send is done only when its receiver has started to receive it (MPI_Issend). Without this MPI
  // may buffer short messages, and hide a cycle of ranks that would wait forever with longer ones.
  bool synchronous_sends = false;
};

// The group of all launched ranks. Collective over them. MPI must be running (see World).
std::unique_ptr<Communicator> mpi_communicator(MpiLimits limits = {});

// MPI's start and end in this process.
class MpiProcess {
 public:
  MpiProcess();   // starts MPI unless it is running. Collective. Throws CheckError.
  ~MpiProcess();  // ends MPI if this object started it and no exception is unwinding the stack
  MpiProcess(const MpiProcess&) = delete;
  MpiProcess& operator=(const MpiProcess&) = delete;

  int local_rank() const { return local_rank_; }
  int num_local_ranks() const { return num_local_ranks_; }    // on this machine
  int first_local_rank() const { return first_local_rank_; }  // the lowest rank on this machine
  [[noreturn]] static void abort(int exit_code);

 private:
  bool is_ours_ = false;
  int exceptions_at_start_ = 0;
  int local_rank_ = 0;
  int num_local_ranks_ = 1;
  int first_local_rank_ = 0;
};

}  // namespace ladder
