// How often DiLoCo's workers communicate, and what they make of it.
#pragma once

#include <cstdint>

#include "common/train/options/step_options.hpp"

namespace ladder {

// What a pseudogradient travels as (step9_diloco/wire_format.hpp).
enum class WireFormat { kFp32, kBf16, kInt8 };

struct DilocoOptions {
  std::int64_t sync_every = 20;    // inner steps between two averages of the same fragment
  std::int64_t num_fragments = 1;  // n
  std::int64_t sync_delay = 0;     // inner steps between the start of an average and its end
  double alpha = 0;                // share of the local parameters that survives an outer step
  double outer_lr = 0.7;
  double outer_momentum = 0.9;  // Nesterov's
  WireFormat wire = WireFormat::kFp32;

  void declare(OptionTable& table);
  void finalize(TrainOptions& options);
};

// The inner steps of a round, S: in each round one fragment is averaged.
inline std::int64_t steps_per_round(const DilocoOptions& options) {
  return options.sync_every / options.num_fragments;
}

}  // namespace ladder
