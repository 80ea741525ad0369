// ZeRO's ways to sum gradients and to gather parameters, for overlap_measurement.hpp.
//
// Each method trains its own model, of the replica's shape, on the replica's batch. As in the other
// methods, clipping and the optimizer are left out, but the parameters are still gathered.
#pragma once

#include "benchmarks/overlap_measurement.hpp"

namespace ladder {

Method zero1_method();
Method zero2_method();
Method zero3_method(int prefetch);

}  // namespace ladder
