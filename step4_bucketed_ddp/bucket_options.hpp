// How large a gradient bucket is.
#pragma once

#include <cstdint>

#include "common/train/options/step_options.hpp"

namespace ladder {

struct BucketOptions {
  double capacity_mb = 25;  // --bucket-mb, in MiB

  void declare(OptionTable& table);
  void finalize(TrainOptions& options);
};

// --bucket-mb in bytes.
std::int64_t bucket_capacity_bytes(const TrainOptions& options);

}  // namespace ladder
