// The store transport, for tensors on the CPU: message_communicator.hpp with messages that pass
// through a store (store_messages.hpp), so that ranks need no MPI. It is how ranks that torchrun
// has started talk, and it carries NCCL's id.
//
// The sums, their bits and the bytes that leave a rank are those of the mpi transport. The speed is
// not: every byte goes through the one process that serves the store, and is copied there twice.
// This is a control channel on which one can train.
//
// A rank that waits asks again and again what has arrived, with pauses of up to 1 ms. No rank waits
// forever for one that will not come: wait() throws a CheckError with that rank and the operation
//
//   within about a second, once a rank has announced that it has failed (store_process.hpp);
//   after the time-out, if it has waited that long.
//
// A message of the wrong length, or of another operation, is reported by the rank that receives it.
// A barrier that meets another operation, and other roots of a broadcast, end with the time-out.
#pragma once

#include <memory>
#include <string>

#include "common/comm/messages/message_communicator.hpp"

namespace ladder {

class KeyValueStore;
struct StoreGroup;

class StoreCommunicator final : public MessageCommunicator {
 public:
  static constexpr double kTimeoutSeconds = 600;

  // A group whose keys begin with `prefix`, which no other group uses. Its ranks have clients of
  // the same server.
  static std::unique_ptr<StoreCommunicator> create(std::shared_ptr<KeyValueStore> store,
                                                   const std::string& prefix, int rank, int size,
                                                   double timeout_s = kTimeoutSeconds);
  // The key under which a rank of such a group announces its failure, for all groups split from it.
  static std::string failure_key(const std::string& prefix);

  std::unique_ptr<Communicator> split(int color, int key) override;

 private:
  StoreCommunicator(std::shared_ptr<StoreGroup> group, std::shared_ptr<OperationEngine> engine);

  std::shared_ptr<StoreGroup> group_;
};

}  // namespace ladder
