// What a rank has trained on.
#pragma once

#include <cstdint>

namespace ladder {

struct BatchCounts {
  std::int64_t microbatches = 0;
  std::int64_t rows = 0;  // a preference pair counts as one
};

}  // namespace ladder
