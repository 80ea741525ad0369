// Messages in flight over MPI: bytes handed to it that have not all left or arrived yet.
//
// A message longer than the group's limit travels, and counts, as several (MPI's sizes are int).
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

#include "common/comm/mpi/mpi_group.hpp"

namespace ladder {

class MpiMessages final : public Messages {
 public:
  MpiMessages(MpiGroup& group, CommOp op) : group_(group), op_(op) {}

  void send(Channel channel, const std::byte* data, std::int64_t bytes, int peer, int tag) override;
  void receive(Channel channel, std::byte* data, std::int64_t bytes, int peer, int tag) override;
  void barrier() override;
  bool test() override;
  void idle(double waited_s) override;

 private:
  struct Unmatched {
    Channel channel;
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
