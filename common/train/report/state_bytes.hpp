// What a rank holds of a model's state.
#pragma once

#include <cstdint>

#include "common/comm/traffic.hpp"
#include "common/core/json.hpp"

namespace ladder {

// Bytes of model state per rank, padding included: as theory predicts, or as the ledger measured.
struct StateBytes {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t optimizer = 0;
  std::int64_t communication = 0;  // held between steps; scratch that comes and goes is not state
  std::int64_t total() const { return parameters + gradients + optimizer + communication; }
  StateBytes& operator+=(const StateBytes& other);
  bool operator==(const StateBytes&) const = default;
};

Json to_json(const StateBytes& bytes);  // by category
Json to_json(const Traffic& traffic);   // by operation

}  // namespace ladder
