// The state that the operations of one MpiCommunicator share: MPI's handles, tags and counts.
//
// MPI errors are thrown as CheckError instead of ending the process, so that they can be reported
// with rank and operation. The handles are never freed: freeing is collective, and a destructor
// must not communicate. MPI frees them when it ends.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "common/comm/messages/message_group.hpp"
#include "common/comm/mpi/mpi_communicator.hpp"

namespace ladder {

struct MpiGroup final : MessageGroup {
  std::unique_ptr<Messages> new_messages(CommOp op) override;
  MPI_Comm comm_of(Channel channel) const {
    return channel == Channel::kCollectives ? collectives : point_to_point;
  }

  MPI_Comm collectives = MPI_COMM_NULL;
  MPI_Comm point_to_point = MPI_COMM_NULL;  // with the caller's tags
  MpiLimits limits;

  // Messages from one sender with the same tag arrive in the order in which they were sent, so
  // their receives wait in line.
  struct Line {
    std::int64_t num_joined = 0;
    std::int64_t num_served = 0;
  };
  std::map<std::tuple<Channel, int /*peer*/, int /*tag*/>, Line> lines;
};

// Throws CheckError with MPI's own text for `code`, unless it is MPI_SUCCESS.
void check_mpi(int code, const char* function);

// Takes over `collectives` and duplicates it for point-to-point messages. Collective over it.
std::shared_ptr<MpiGroup> make_mpi_group(MPI_Comm collectives, MpiLimits limits,
                                         std::shared_ptr<Traffic> meter);

}  // namespace ladder
