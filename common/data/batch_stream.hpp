// The batches of a run, one optimizer step after the other, epoch after epoch.
//
// Each epoch has an order, the same for all ranks: a permutation that depends on (seed, epoch), or
// 0, 1, 2, …. A DataShard picks this rank's samples from it. An optimizer step takes the next
// microbatch_size · num_microbatches of them. The last step of an epoch takes what is left: fewer
// microbatches, the last one with fewer rows. Nothing is dropped but what DataShard drops, and
// nothing leaks into the next epoch.
//
// The position is a global count of samples, so a run can go on with another number of ranks. It is
// all the state there is: a stream that seeks to another one's position gives the same batches from
// there on. An epoch is over when its position has reached the number of samples, or when what is
// left gives this reader nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/data/batch.hpp"
#include "common/data/dataset.hpp"
#include "common/data/options.hpp"

namespace ladder {

// Who reads what: `num_readers` readers use up an epoch together, and this one takes select(order,
// position), where `order` is the whole epoch's and its first `position` samples are used up. All
// readers must take equally many.
struct DataShard {
  int num_readers = 1;
  std::function<std::vector<std::int64_t>(std::span<const std::int64_t> order,
                                          std::int64_t position)>
      select;
  std::int64_t rows_factor = 1;  // a training microbatch has microbatch_size times so many rows
};

// One reader of everything; the rest of an epoch is dropped or padded (repeating the order from its
// start, as often as needed) to a multiple of num_ranks. Its microbatches hold the rows of so many
// ranks.
DataShard whole_data(Tail tail, std::int64_t num_ranks = 1);

// The order of an epoch's samples: a permutation of 0 … num_samples-1 by (seed, epoch), or those
// numbers in order.
std::vector<std::int64_t> epoch_order(std::int64_t num_samples, std::uint64_t seed,
                                      std::int64_t epoch, SampleOrder order);

struct DataPosition {
  std::int64_t epoch = 0;
  std::int64_t samples = 0;  // of this epoch, used up by all readers together
  bool operator==(const DataPosition&) const = default;
};

class BatchStream {
 public:
  // Opens the data. Throws UsageError for sizes below 1 and for validation data of another
  // tokenizer, and what Dataset throws.
  BatchStream(const DataOptions& options, DataShard shard);

  // The microbatches of the next optimizer step. With overfit_one_batch the position stays, so all
  // are the same. Throws CheckError if the shard gives this reader no samples, even of a whole
  // epoch.
  Microbatches next();

  DataPosition position() const { return position_; }  // what next() goes on from
  void seek(const DataPosition& position);  // throws CheckError for one that the data does not have

  std::int64_t num_microbatches() const {
    return num_microbatches_;
  }  // that next() has given so far

  // Optimizer steps of an epoch from its start, the short last one included.
  std::int64_t steps_per_epoch() const;

  const Dataset& training_data() const { return training_; }
  const Dataset& validation_data() const { return validation_; }
  // The rows that every evaluation reads, cut into microbatches: the first validation_samples of
  // the validation data, read anew at each call so that nothing of them stays in memory. None where
  // there is no validation data.
  Microbatches validation() const;

 private:
  void select();  // the shard's samples from the position on
  bool is_epoch_over() const;
  std::int64_t rows_per_microbatch() const { return options_.microbatch_size * shard_.rows_factor; }
  // Cut into microbatches of so many rows.
  static Microbatches read(const Dataset& dataset, std::span<const std::int64_t> samples,
                           std::int64_t rows);

  DataOptions options_;
  DataShard shard_;
  Dataset training_;
  Dataset validation_;
  DataPosition position_;
  std::vector<std::int64_t> selection_;  // this reader's, since the last seek or start of an epoch
  std::size_t num_taken_ = 0;            // of the selection
  std::int64_t num_microbatches_ = 0;
};

}  // namespace ladder
