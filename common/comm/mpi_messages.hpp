// Messages in flight: bytes handed to MPI that have not all left or arrived yet.
//
// A message longer than the group's limit is sent in pieces (MPI counts bytes as int); an empty one
// is not sent. Traffic is counted here, piece by piece, at the sender.
//
// A piece is first matched (MPI_Improbe) and its length checked, and only then received into the
// caller's memory. Posting a receive beforehand would be shorter, but if the sender's message is
// longer than the buffer, Open MPI 4.1 reports the truncation only after overwriting the memory
// behind it.
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
  // The bytes are counted under `op`, which errors name as well. The group must outlive the
  // messages.
  MpiMessages(MpiGroup& group, CommOp op) : group_(group), op_(op) {}

  // The bytes must stay untouched and alive until test() returns true. `comm` is one of the group's
  // two. For the same peer, comm and tag, receives are served in the order of the calls.
  void send(MPI_Comm comm, const std::byte* data, std::int64_t bytes, int peer, int tag);
  void receive(MPI_Comm comm, std::byte* data, std::int64_t bytes, int peer, int tag);
  // Not counted as traffic; in flight until every rank of the group has called it.
  void barrier(MPI_Comm comm);

  // Lets MPI make progress; true once everything has left and arrived. Throws CheckError, once, if
  // a message does not have the expected length; it is received into other memory, so that its
  // sender can continue.
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
  bool try_match(const Unmatched& receive);  // true if it is matched now
  void test_requests();
  MPI_Request* new_request();

  MpiGroup& group_;
  CommOp op_;
  std::vector<Unmatched> unmatched_;
  int num_pending_ = 0;  // of the requests
  std::vector<MPI_Request> requests_;
  std::vector<int> indices_;                             // for MPI_Testsome
  std::vector<std::unique_ptr<std::byte[]>> discarded_;  // messages of the wrong length
  std::string error_;                                    // about the last one, until thrown
};

}  // namespace ladder
