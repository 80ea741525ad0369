// Messages in flight: bytes that were handed to MPI and have not all left or arrived yet.
//
// A message longer than the group's limit travels in pieces (MPI counts bytes as int). An empty one
// does not travel. What is sent is counted here, piece by piece, where it leaves.
//
// A piece is received in two steps: it is matched (MPI_Improbe), its length compared, and only then
// received into the caller's memory. Posting a receive beforehand would be shorter, but when the
// sender's message is longer than that, Open MPI 4.1 reports the truncation only after it has
// written over what lies behind the buffer.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/mpi_group.hpp"

namespace ladder {

class MpiMessages {
 public:
  // `op` says what the bytes are counted under and stands in errors. The group outlives the
  // messages.
  MpiMessages(MpiGroup& group, CommOp op) : group_(group), op_(op) {}

  // The bytes stay untouched and alive until test() returns true. `comm` is one of the group's two.
  // Messages of one peer, comm and tag are received in the order in which they were asked for.
  void send(MPI_Comm comm, const std::byte* data, std::int64_t bytes, int peer, int tag);
  void receive(MPI_Comm comm, std::byte* data, std::int64_t bytes, int peer, int tag);
  // Counts as nothing; in flight until every rank of the group has called it.
  void barrier(MPI_Comm comm);

  // Moves MPI on; true once everything has left and arrived. Throws CheckError, once, if a message
  // has another length than expected here; that message is received elsewhere, so that its sender
  // can go on.
  bool test();

 private:
  struct Unmatched {
    MPI_Comm comm;
    std::byte* data;
    std::int64_t bytes;
    int peer;
    int tag;
    MpiGroup::Line* line;
    std::int64_t place_in_line;
  };
  bool try_match(const Unmatched& receive);  // true once it has been matched
  void test_requests();
  MPI_Request* new_request();

  MpiGroup& group_;
  CommOp op_;
  std::vector<Unmatched> unmatched_;
  int num_pending_ = 0;  // of the requests
  std::vector<MPI_Request> requests_;
  std::vector<int> indices_;                             // for MPI_Testsome
  std::vector<std::unique_ptr<std::byte[]>> discarded_;  // messages of a wrong length
  std::string error_;  // about the last of them, until it is thrown
};

}  // namespace ladder
