// The microbatches of one optimizer step: a fixed number of them, or as many as it takes to reach a
// number of documents.
#pragma once

#include "common/comm/mesh.hpp"
#include "common/data/batch_stream.hpp"
#include "common/train/options/options.hpp"
#include "common/train/report/step_record.hpp"
#include "step2_sharded_data/data_shard.hpp"

namespace ladder {

// The data options of a whole optimizer step: the microbatches of all its flushes, and the rows
// that the options have the data read as.
DataOptions step_data(const TrainOptions& options);

// The samples of this replica, as in step 2: all its stages read them.
DataShard replica_shard(const TrainOptions& options, const Mesh& mesh);

struct StepBatch {
  Microbatches microbatches;
  Metrics metrics = {};  // with --docs-per-step: documents, of all replicas, and microbatches
};

// Without --docs-per-step, the stream's next step. With it, microbatches are fetched one at a time
// until those of all replicas hold at least so many documents. The last one is kept whole, so a
// step may have more. An epoch's last step takes what is left. A document counts where it begins.
//
// The number is global, so every replica fetches the same number of microbatches; and all of them
// are there before the first forward, so that their units can be counted.
//
// Collective over the replicas: one all-reduce per microbatch. Throws UsageError if the data does
// not mark documents, or has fewer than --docs-per-step.
StepBatch next_batch(BatchStream& batches, const TrainOptions& options, Communicator& replicas);

// The microbatches of one flush of this step: --num-microbatches, or all with --docs-per-step.
std::int64_t flush_size(const TrainOptions& options, const Microbatches& batch);

}  // namespace ladder
