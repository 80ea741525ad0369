// What the operations of one MpiCommunicator share: MPI's handles, the tags, the counts.
//
// Errors of MPI come back as CheckError instead of ending the process, so that they can be reported
// with rank and operation. The handles are never freed: freeing is collective, and a destructor
// must not communicate. MPI frees them when it ends.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "common/comm/mpi_communicator.hpp"
#include "common/comm/traffic.hpp"

namespace ladder {

struct MpiGroup {
  MPI_Comm collectives = MPI_COMM_NULL;
  MPI_Comm point_to_point = MPI_COMM_NULL;  // its tags are the caller's
  int rank = 0;
  int size = 1;
  MpiLimits limits;
  std::int64_t num_started = 0;    // collectives; the next one's number
  std::shared_ptr<Traffic> meter;  // of this group, and of all groups split from one

  // Messages of one sender and tag arrive in the order in which they were sent, so their receivers
  // stand in line.
  struct Line {
    std::int64_t num_joined = 0;
    std::int64_t num_served = 0;
  };
  std::map<std::tuple<bool /*point to point*/, int /*peer*/, int /*tag*/>, Line> lines;

  // Collectives are started in the same order on every rank, so the number of a collective is a
  // name for it. Tags are these numbers, used again after limits.num_tags collectives.
  int tag_of(std::int64_t number) const { return static_cast<int>(number % limits.num_tags); }
};

// Throws CheckError with MPI's own text for `code`, unless it is MPI_SUCCESS.
void check_mpi(int code, const char* function);

// Takes over `collectives` and duplicates it for messages between two ranks. Collective over it.
std::shared_ptr<MpiGroup> make_mpi_group(MPI_Comm collectives, MpiLimits limits,
                                         std::shared_ptr<Traffic> meter);

}  // namespace ladder
