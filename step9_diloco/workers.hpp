// The other workers, as a run's options describe them: the ranks of this run, or whoever meets at a
// lighthouse.
#pragma once

#include <memory>
#include <string>

#include "common/comm/communicator.hpp"
#include "common/data/batch_stream.hpp"
#include "common/train/options/options.hpp"
#include "step9_diloco/averager.hpp"

namespace ladder {

// Throws UsageError with --elastic if this is one of several ranks, or if the program was built
// without ZeroMQ. Lifetime: the communicator outlives the result.
std::unique_ptr<Averager> find_workers(const TrainOptions& options, Communicator& comm);

// The rows of this worker.
DataShard worker_shard(const TrainOptions& options, const Communicator& comm);

// What must be the same for all workers that meet at a lighthouse: the model, how rows are dealt and
// the outer optimizer. Not --sync-every: slower workers may take fewer steps per round. Empty without
// --elastic.
std::string describe_group(const TrainOptions& options);

}  // namespace ladder
