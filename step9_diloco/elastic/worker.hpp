// A run as one worker of a group: what it tells the others, and what it gives to one that is
// behind.
#pragma once

#include <string>

#include "common/optim/optimizer.hpp"
#include "common/train/run.hpp"
#include "step2_sharded_data/data_shard.hpp"
#include "step9_diloco/diloco.hpp"
#include "step9_diloco/elastic/elastic_averager.hpp"
#include "step9_diloco/elastic/log.hpp"
#include "step9_diloco/elastic/snapshot.hpp"

namespace ladder {

// Writes to the console, unless the run is quiet: "worker 1 has healed from worker 2".
Log worker_log(const TrainOptions& options);

// The samples of this worker, dealt as to the ranks of step 2.
DataShard worker_shard(const TrainOptions& options);

// What must be the same for all workers that meet at a lighthouse: all options that change bits, and
// the contents of the data, wherever they lie. Not what may differ from machine to machine (threads,
// libraries), nor the length of a round: slower workers may take fewer steps per round, and in all.
GroupSettings group_settings(const TrainOptions& options, const BatchStream& batches);

// Asks who takes part in this round, and starts its average with them. Asks before it reads
// anything: the answer may replace this worker's state. Collective over the workers that are there.
// Does nothing if the average is there already, from an earlier step or a checkpoint.
void start_round(Diloco& diloco, ElasticAverager& workers);

// Waits for this round's average, and takes the outer step if it is committed. A round without an
// average goes on, and so does that of a worker that has given up, after a resume: it keeps what it
// has learned. Any other round that fails is lost. Returns whether it was committed.
bool finish_round(Diloco& diloco, const ElasticAverager& workers);

// A state for a checkpoint, with its ElasticAverager::history(). Checkpoints of former versions do
// not have all of that; in a group whose run has begun, such a state heals.
TrainState with_last_quorum(TrainState state, ElasticAverager& workers);

// `local`: what the inner optimizer updates. Two workers may have rounds of other lengths, so a run
// that heals goes on from the round that the other one was in, and from its own last one if the
// other has finished. Lifetime: the arguments outlive the state.
WorkerState worker_state(Diloco& diloco, const FlatModel& local, const FlatModel& global,
                         Optimizer& inner, Run& run, const TrainOptions& options);

}  // namespace ladder
