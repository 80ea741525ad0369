// This process among the ranks that torchrun has started: how they find one another, and part.
//
// torchrun serves a store at MASTER_ADDR:MASTER_PORT, and all ranks are its clients. Where it says
// that it serves none (TORCHELASTIC_USE_AGENT_STORE), rank 0 does.
//
// Keys begin with the number of restarts and a number that each rank counts, so neither a group
// that torchrun has started again nor a second World meets the keys of the one before. This needs
// the same number of restarts everywhere: one machine, or torchrun's static rendezvous.
#pragma once

#include <memory>
#include <string>

#include "common/comm/communicator.hpp"
#include "common/comm/launcher_environment.hpp"

namespace ladder {

class KeyValueStore;

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
