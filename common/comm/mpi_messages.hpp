// Messages in flight: bytes that were handed to MPI and have not all left or arrived yet.
//
// A message longer than the group's limit travels in pieces (MPI counts bytes as int). An empty one does not travel.
// What is sent is counted here, piece by piece, where it leaves.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/comm/mpi_group.hpp"

namespace ladder {

class MpiMessages {
 public:
  // `op` says what the bytes are counted under and stands in errors. The group outlives the messages.
  MpiMessages(MpiGroup& group, CommOp op) : group_(group), op_(op) {}

  // The bytes stay untouched and alive until test() returns true. `comm` is one of the group's two.
  void send(MPI_Comm comm, const std::byte* data, std::int64_t bytes, int peer, int tag);
  void receive(MPI_Comm comm, std::byte* data, std::int64_t bytes, int peer, int tag);
  // Counts as nothing; in flight until every rank of the group has called it.
  void barrier(MPI_Comm comm);

  // Moves MPI on; true once everything has left and arrived. Throws CheckError if a message has another length
  // than the receiver expects.
  bool test();

 private:
  struct Expected {  // what a request has to bring
    int peer;
    std::int64_t bytes;
    bool is_receive;
  };
  void check_completed(const Expected& expected, int code, const MPI_Status& status) const;

  MpiGroup& group_;
  CommOp op_;
  int num_pending_ = 0;
  std::vector<MPI_Request> requests_;
  std::vector<Expected> expected_;
  std::vector<int> indices_;  // for MPI_Testsome
  std::vector<MPI_Status> statuses_;
};

}  // namespace ladder
