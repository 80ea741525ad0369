// How large a gradient bucket is.
#pragma once

#include "common/train/options/option_table.hpp"

namespace ladder {

struct BucketOptions {
  double capacity_mb = 25;  // --bucket-mb, in MiB

  void declare(OptionTable& table) {
    table.heading("Buckets");
    table
        .value("--bucket-mb", capacity_mb, "capacity of a gradient bucket in MiB; 0.0625 is 64 KiB")
        .changes_no_bits();
  }
  void finalize(TrainOptions& /*options*/) const {
    check_usage(capacity_mb * 1024 * 1024 >= 1 && capacity_mb <= 1 << 20, "--bucket-mb is ",
                capacity_mb, ", it must be at least one byte, and at most a TiB");
  }
};

// --bucket-mb in bytes.
inline std::int64_t bucket_capacity_bytes(const TrainOptions& options) {
  return static_cast<std::int64_t>(options.get<BucketOptions>().capacity_mb * 1024 * 1024);
}

}  // namespace ladder
