// The batches of a run, one optimizer step after the other, epoch after epoch.
//
// Each epoch has an order, the same for all ranks: a permutation that depends on (seed, epoch), or
// 0, 1, 2, …. A DataShard selects this rank's samples from it. An optimizer step takes the next
// microbatch_size · num_microbatches of them. The last step of an epoch takes what is left: fewer
// microbatches, the last one with fewer rows. No samples are dropped except by the DataShard, and
// none carry over into the next epoch.
//
// The position is a global count of samples, so a run can continue on another number of ranks. It
// is the only state: a stream that seeks to another one's position returns the same batches from
// there on. An epoch is over when its position has reached the number of samples, or when the
// remaining samples leave none for this reader.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/data/batch.hpp"
#include "common/data/batch_counts.hpp"
#include "common/data/dataset.hpp"
#include "common/data/options.hpp"

namespace ladder {

// Which samples a reader takes. `num_readers` readers share an epoch. This one takes select(order,
// position), where `order` is the whole epoch's and its first `position` samples have been used.
// All readers must take the same number of samples.
struct DataShard {
  int num_readers = 1;
  std::function<std::vector<std::int64_t>(std::span<const std::int64_t> order,
                                          std::int64_t position)>
      select;
  std::int64_t rows_factor = 1;  // a training microbatch has microbatch_size times this many rows
  // Of a step's microbatches, this reader takes number `rank`, rank + num_ranks, …. (Then it reads for
  // all: num_readers is 1.) A rank that gets one less than others has one without any target last.
  int rank = 0, num_ranks = 1;
};

// A single reader of all samples. The rest of an epoch is dropped, or padded to a multiple of
// num_ranks by repeating the order from its start as often as needed. A microbatch has the rows of
// num_ranks ranks.
DataShard whole_data(Tail tail, std::int64_t num_ranks = 1);

// All samples, none dropped or repeated, and of each step's microbatches number `rank`, rank +
// num_ranks, …, so that a microbatch's rows do not depend on the number of ranks.
DataShard dealt_microbatches(int rank, int num_ranks);

// The order of an epoch's samples: the permutation of 0 … num_samples-1 given by (seed, epoch), or
// those numbers in order.
std::vector<std::int64_t> epoch_order(std::int64_t num_samples, std::uint64_t seed,
                                      std::int64_t epoch, SampleOrder order);

struct DataPosition {
  std::int64_t epoch = 0;
  std::int64_t samples = 0;  // of this epoch, used so far by all readers together
  bool operator==(const DataPosition&) const = default;
};

class BatchStream {
 public:
  // Opens the data. Throws UsageError for sizes below 1 and for validation data with another
  // tokenizer, and the errors of Dataset.
  BatchStream(const DataOptions& options, DataShard shard);

  // Returns the microbatches of the next optimizer step. With overfit_one_batch the position does
  // not advance, so all steps get the same ones. Throws CheckError if even a whole epoch has no
  // samples for this reader.
  Microbatches next();
  // Like next(), but a single microbatch, for steps that are put together one by one.
  Microbatch next_microbatch();
  bool is_epoch_over() const;  // the next microbatch then comes from the next epoch

  // The next step is the last one again. To be called at most once after each next().
  void step_back();

  DataPosition position() const { return position_; }  // where next() continues
  void seek(const DataPosition& position);             // throws CheckError if it is not in the data

  const BatchCounts& counts() const { return counts_; }  // of what next() has returned so far

  // The optimizer steps in a whole epoch, including the short last one.
  std::int64_t steps_per_epoch() const;

  const Dataset& training_data() const { return training_; }
  const Dataset& validation_data() const { return validation_; }
  // Returns the samples for an evaluation, cut into microbatches: the first validation_samples of
  // the validation data, read anew in each call so that they do not stay in memory. Empty without
  // validation data. Every rank reads all of them: they are few, and tokens are small.
  Microbatches validation() const;
  // What these samples have to predict.
  TargetText validation_text() const {
    return validation_.text_of_targets(num_validation_samples());
  }

 private:
  void select();  // the shard's samples, starting at the position
  Microbatches take(std::int64_t num_microbatches);  // fewer at the end of an epoch
  std::int64_t num_validation_samples() const;
  std::int64_t rows_per_microbatch() const { return options_.microbatch_size * shard_.rows_factor; }
  // The microbatches of a whole step, of all that the shard's samples are dealt to.
  std::int64_t microbatches_per_step() const;
  // Reads those of the samples' microbatches that are this rank's.
  Microbatches read_dealt(std::span<const std::int64_t> samples) const;
  // Reads the samples in microbatches of `rows` rows.
  Microbatches read(const Dataset& dataset, std::span<const std::int64_t> samples,
                    std::int64_t rows) const;

  DataOptions options_;
  DataShard shard_;
  Dataset training_;
  Dataset validation_;
  DataPosition position_, step_position_;  // step_: where the last step began
  std::vector<std::int64_t> selection_;  // this reader's, since the last seek or start of an epoch
  std::size_t num_taken_ = 0;            // of the selection
  BatchCounts counts_, step_counts_;
};

}  // namespace ladder
