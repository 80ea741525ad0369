// For the grader: what an answer costs.
#pragma once

#include <cstdint>

#include "common/comm/communicator.hpp"
#include "common/core/memory_ledger.hpp"

namespace ladder::step5 {

// What this rank sends and holds from here on.
class Meter {
 public:
  explicit Meter(const Communicator& comm) : comm_(comm), sent_(comm.traffic().bytes_sent()) {
    reset_memory_peaks();
    held_ = read_memory().total_live_bytes;
  }
  std::int64_t sent_bytes() const { return comm_.traffic().bytes_sent() - sent_; }
  std::int64_t most_held_bytes() const { return read_memory().peak_bytes - held_; }

 private:
  const Communicator& comm_;
  std::int64_t sent_ = 0, held_ = 0;
};

}  // namespace ladder::step5
