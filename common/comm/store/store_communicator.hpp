// The store transport, for tensors on the CPU: message_communicator.hpp with messages that pass
// through a store, so that ranks need no MPI. It is how ranks that torchrun has started talk, and
// it carries NCCL's id.
//
// The sums, their bits and the bytes that leave a rank are those of the mpi transport. The speed is
// not: every byte goes through the one process that serves the store, and is copied there twice.
// This is a control channel on which one can train.
//
// A rank that waits asks again and again what has arrived, with pauses of up to 1 ms. No rank waits
// forever for one that will not come: wait() throws a CheckError with that rank and the operation
//
//   within about a second, once a rank has announced that it has failed (StoreProcess);
//   after the time-out, if it has waited that long.
//
// A message of the wrong length, or of another operation, is reported by the rank that receives it.
// A barrier that meets another operation, and other roots of a broadcast, end with the time-out.
#pragma once

#include <memory>
#include <string>

#include "common/comm/communicator.hpp"
#include "common/comm/launcher_environment.hpp"

namespace ladder {

class KeyValueStore;

inline constexpr double kStoreTimeoutSeconds = 600;

// A group whose keys begin with `prefix`, which no other group uses. Its ranks have clients of the
// same server.
std::unique_ptr<Communicator> store_communicator(std::shared_ptr<KeyValueStore> store,
                                                 const std::string& prefix, int rank, int size,
                                                 double timeout_s = kStoreTimeoutSeconds);
// The key under which a rank of such a group announces its failure, for all groups split from it.
std::string store_failure_key(const std::string& prefix);

// This process among the ranks that torchrun has started: how they find one another, and part.
//
// torchrun serves a store at MASTER_ADDR:MASTER_PORT, and all ranks are its clients. Where it says
// that it serves none (TORCHELASTIC_USE_AGENT_STORE), rank 0 does.
//
// Keys begin with the number of restarts and a number that each rank counts, so neither a group
// that torchrun has started again nor a second World meets the keys of the one before. This needs
// the same number of restarts everywhere: one machine, or torchrun's static rendezvous.
class StoreProcess {
 public:
  // Throws CheckError if nobody serves a store there.
  StoreProcess();
  // Where rank 0 serves the store, it waits for the others to leave. While an exception unwinds the
  // stack, it announces the failure instead.
  ~StoreProcess();
  StoreProcess(const StoreProcess&) = delete;
  StoreProcess& operator=(const StoreProcess&) = delete;

  std::unique_ptr<Communicator> communicator() const;  // of all ranks. Local. Call it once
  // Ranks that wait for others then throw. Without this they wait for torchrun: it sends SIGTERM,
  // on which a trainer saves and stops after its step, and SIGKILL 30 seconds later.
  void announce_failure() noexcept;

 private:
  void leave();

  bool is_server() const;

  MeetingPoint point_;
  int exceptions_at_start_;
  std::shared_ptr<KeyValueStore> store_;
  std::string prefix_;
};

}  // namespace ladder
