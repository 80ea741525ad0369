// Ranks that do different things would wait for each other forever. These two checks end such a run
// before it begins.
//
// Collective: every rank calls them at the same point. Every rank sees the values of all, so all of
// them throw, and none continues.
#pragma once

#include "common/comm/communicator.hpp"
#include "common/data/batch_stream.hpp"
#include "common/train/options/options.hpp"
#include "common/train/run.hpp"

namespace ladder {

// Checks that every rank runs the same step with the same options. Throws UsageError naming the
// first option that differs from rank 0's, the rank, and both values. An option that was not given
// counts with the value that it has on a rank: ranks on different CPUs may multiply differently.
void check_same_options(const TrainOptions& options, Communicator& comm);

// Checks that every rank continues from the same step, at the same position of equally large data;
// each rank has resumed and opened its files on its own. Throws CheckError naming what differs from
// rank 0, the rank, and both values.
void check_same_start(const Run& run, const BatchStream& batches, Communicator& comm);

}  // namespace ladder
