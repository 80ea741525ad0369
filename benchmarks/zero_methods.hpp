// ZeRO's ways to sum gradients, and to make parameters whole, for overlap_measurement.hpp.
//
// Each trains a model of its own, of the replica's shape, on the replica's batch. Clipping and the
// optimizer are left out as in the other methods; the parameters are gathered all the same.
#pragma once

#include "benchmarks/overlap_measurement.hpp"

namespace ladder {

Method zero1_method();
Method zero2_method();
Method zero3_method(int prefetch);

}  // namespace ladder
