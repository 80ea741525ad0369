// The MPI transport: message_communicator.hpp with MPI's messages.
//
// Each collective in flight has a tag of its own; send and recv use a separate MPI communicator. A
// message of the wrong length is detected and reported by the rank that receives it. A barrier is
// MPI's own.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>

#include "common/comm/messages/message_communicator.hpp"

namespace ladder {

struct MpiGroup;

// For tests, which set the numbers to small values. Values above MPI's own limits are reduced to
// those.
struct MpiLimits {
  std::int64_t message_bytes = kLongestMessageBytes;  // longer messages travel in pieces
  std::int64_t num_tags = std::numeric_limits<int>::max();
  // A send is done only when its receiver has started to receive it (MPI_Issend). Without this MPI
  // may buffer short messages, and hide a cycle of ranks that would wait forever with longer ones.
  bool synchronous_sends = false;
};

class MpiCommunicator final : public MessageCommunicator {
 public:
  // The group of all launched ranks. Collective over them. MPI must be running (see World).
  static std::unique_ptr<MpiCommunicator> create(MpiLimits limits = {});

  std::unique_ptr<Communicator> split(int color, int key) override;

 private:
  MpiCommunicator(std::shared_ptr<MpiGroup> group, std::shared_ptr<OperationEngine> engine);

  std::shared_ptr<MpiGroup> group_;
};

}  // namespace ladder
