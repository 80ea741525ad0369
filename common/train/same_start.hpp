// Ranks that do not do the same wait for each other for ever. These two checks end that before it
// begins.
//
// Collective: every rank calls them at the same place. All ranks see the values of all, so all of
// them throw, and none goes on.
#pragma once

#include "common/comm/communicator.hpp"
#include "common/data/batch_stream.hpp"
#include "common/train/options.hpp"
#include "common/train/run.hpp"

namespace ladder {

// Every rank was started as the same step, with the same options. Throws UsageError naming the first
// option that differs from rank 0's, the rank, and both values.
void check_same_options(const TrainOptions& options, Communicator& comm);

// Every rank goes on from the same step, at the same place of equally large data: what resuming and
// opening files have found out on each rank for itself. Throws CheckError naming what differs from
// rank 0, the rank, and both values.
void check_same_start(const Run& run, const BatchStream& batches, Communicator& comm);

}  // namespace ladder
