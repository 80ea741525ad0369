#include "common/comm/mpi/mpi_communicator.hpp"

#include <mpi.h>

#include <utility>

#include "common/comm/messages/operation_engine.hpp"
#include "common/comm/mpi/mpi_group.hpp"

namespace ladder {

std::unique_ptr<MpiCommunicator> MpiCommunicator::create(MpiLimits limits) {
  MPI_Comm all = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &all), "MPI_Comm_dup");
  return std::unique_ptr<MpiCommunicator>(
      new MpiCommunicator(make_mpi_group(all, limits, std::make_shared<Traffic>()),
                          std::make_shared<OperationEngine>()));
}

MpiCommunicator::MpiCommunicator(std::shared_ptr<MpiGroup> group,
                                 std::shared_ptr<OperationEngine> engine)
    : MessageCommunicator(group, std::move(engine)), group_(std::move(group)) {}

std::unique_ptr<Communicator> MpiCommunicator::split(int color, int key) {
  // MPI_Comm_split blocks without advancing our operations. So all ranks first meet in this
  // barrier, which does advance them.
  meet();
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(group_->collectives, color < 0 ? MPI_UNDEFINED : color, key, &part),
            "MPI_Comm_split");
  if (part == MPI_COMM_NULL) return nullptr;
  return std::unique_ptr<Communicator>(
      new MpiCommunicator(make_mpi_group(part, group_->limits, group_->meter), engine()));
}

}  // namespace ladder
