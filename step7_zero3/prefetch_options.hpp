// How far ahead parameters are gathered.
#pragma once

#include "common/train/options/option_table.hpp"

namespace ladder {

struct PrefetchOptions {
  int num_units = 1;  // --prefetch: units whose parameters are gathered ahead of the one in use

  void declare(OptionTable& table) {
    table.heading("Prefetch");
    table
        .number("--prefetch", num_units, {0, 2},
                "units whose parameters are gathered ahead of the one in use: 0, 1 or 2")
        .changes_no_bits();
  }
};

}  // namespace ladder
