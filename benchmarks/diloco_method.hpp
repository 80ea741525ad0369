// Step 9's average of the whole model, for overlap_measurement.hpp: it is in flight during one
// inner step (--sync-delay 1), and the gradient hooks poll, or nobody does.
#pragma once

#include "benchmarks/overlap_measurement.hpp"

namespace ladder {

Method diloco_method(bool is_polled);

}  // namespace ladder
