#include "common/comm/transport.hpp"

#include "common/core/check.hpp"

namespace ladder {

const char* to_string(Transport transport) {
  switch (transport) {
    case Transport::kAuto:
      return "auto";
    case Transport::kSelf:
      return "self";
    case Transport::kMpi:
      return "mpi";
    case Transport::kThreads:
      return "threads";
    case Transport::kStore:
      return "store";
    case Transport::kNccl:
      return "nccl";
    case Transport::kSimulated:
      return "simulated";
  }
  throw CheckError(concat("no such transport: ", static_cast<int>(transport)));
}

}  // namespace ladder
