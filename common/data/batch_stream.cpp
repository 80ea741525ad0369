#include "common/data/batch_stream.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/core/check.hpp"
#include "common/core/seed.hpp"
#include "common/core/trace.hpp"

namespace ladder {

DataShard whole_data(Tail tail, std::int64_t num_ranks) {
  check(num_ranks >= 1, "whole_data: the number of ranks is ", num_ranks,
        ", it must be at least 1");
  const auto select = [tail, num_ranks](std::span<const std::int64_t> order,
                                        std::int64_t position) {
    const auto num_left = static_cast<std::int64_t>(order.size()) - position;
    const std::int64_t total =
        (tail == Tail::kDrop ? num_left : num_left + num_ranks - 1) / num_ranks * num_ranks;
    std::vector<std::int64_t> samples;
    samples.reserve(static_cast<std::size_t>(total));
    for (std::int64_t i = 0; i < total; ++i) {
      const std::int64_t place =
          i < num_left ? position + i : (i - num_left) % static_cast<std::int64_t>(order.size());
      samples.push_back(order[static_cast<std::size_t>(place)]);
    }
    return samples;
  };
  return {1, select, num_ranks};
}

DataShard dealt_microbatches(int rank, int num_ranks) {
  DataShard shard = whole_data(Tail::kDrop);
  shard.rank = rank;
  shard.num_ranks = num_ranks;
  return shard;
}

std::vector<std::int64_t> epoch_order(std::int64_t num_samples, std::uint64_t seed,
                                      std::int64_t epoch, SampleOrder order) {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(num_samples));
  std::iota(samples.begin(), samples.end(), 0);
  if (order == SampleOrder::kSequential) return samples;
  Random random(derive_seed(seed, concat("data order, epoch ", epoch)));
  for (std::int64_t i = num_samples - 1; i > 0; --i) {  // Fisher and Yates
    std::swap(samples[static_cast<std::size_t>(i)],
              samples[static_cast<std::size_t>(random.below(i + 1))]);
  }
  return samples;
}

Microbatch no_targets(std::int64_t context) {
  return {at::zeros({1, context}, at::kLong), at::full({1, context}, kIgnoredTarget, at::kLong)};
}

BatchStream::BatchStream(const DataOptions& options, DataShard shard)
    : options_(options),
      shard_(std::move(shard)),
      training_(Dataset::open_training(options)),
      validation_(Dataset::open_validation(options)) {
  check_usage(options.microbatch_size >= 1, "--micro-batch-size is ", options.microbatch_size,
              ", it must be at least 1");
  check_usage(options.num_microbatches >= 1, "--num-microbatches is ", options.num_microbatches,
              ", it must be at least 1");
  check_usage(options.validation_samples >= 0, "the number of validation samples is ",
              options.validation_samples, ", it must be 0 (all of them) or more");
  check(shard_.num_readers >= 1 && shard_.select,
        "a data shard needs at least one reader and a selection");
  check_usage(validation_.num_samples() == 0 || validation_.tokenizer() == training_.tokenizer(),
              "--val-data has '", validation_.tokenizer(), "' tokens, but --data has '",
              training_.tokenizer(),
              "' tokens; a model reads only one kind, so choose data of the same kind");
  select();
}

void BatchStream::select() {
  const auto order =
      epoch_order(training_.num_samples(), options_.seed, position_.epoch, options_.order);
  selection_ = shard_.select(order, position_.samples);
  num_taken_ = 0;
}

bool BatchStream::is_epoch_over() const {
  return num_taken_ == selection_.size() || position_.samples == training_.num_samples();
}

std::int64_t BatchStream::microbatches_per_step() const {
  if (options_.deal == Deal::kSamples) return options_.num_microbatches;
  return options_.step_microbatches > 0 ? options_.step_microbatches
                                        : options_.num_microbatches * shard_.num_ranks;
}

Microbatches BatchStream::next() {
  return take(microbatches_per_step());
}

Microbatch BatchStream::next_microbatch() {
  return take(1)[0];
}

Microbatches BatchStream::take(std::int64_t num_microbatches) {
  step_position_ = position_;
  step_counts_ = counts_;
  if (is_epoch_over()) {
    position_ = {position_.epoch + 1, 0};
    select();
    check(!selection_.empty(), "the data has ", training_.num_samples(), " samples, too few for ",
          shard_.num_readers * shard_.rows_factor,
          " ranks to get one each when the rest is dropped; use --tail pad, fewer ranks or more "
          "data");
  }
  const auto step_samples = static_cast<std::size_t>(rows_per_microbatch() * num_microbatches);
  const std::size_t num_samples = std::min(step_samples, selection_.size() - num_taken_);
  const auto samples = std::span<const std::int64_t>(selection_).subspan(num_taken_, num_samples);
  if (!options_.overfit_one_batch) {
    num_taken_ += num_samples;
    position_.samples =
        std::min(position_.samples + static_cast<std::int64_t>(num_samples) * shard_.num_readers,
                 training_.num_samples());  // padding exceeds the end
  }
  Microbatches batch = options_.deal == Deal::kMicrobatches
                           ? read_dealt(samples)
                           : read(training_, samples, rows_per_microbatch());
  counts_.microbatches += batch.size();
  for (const Microbatch& microbatch : batch)  // one without targets has a row of no sample
    counts_.rows += std::max<std::int64_t>(1, std::ssize(microbatch.samples));
  return batch;
}

Microbatches BatchStream::read_dealt(std::span<const std::int64_t> samples) const {
  const auto rows = static_cast<std::size_t>(rows_per_microbatch());
  const auto num_ranks = static_cast<std::size_t>(shard_.num_ranks);
  std::vector<Microbatch> list;
  for (auto first = static_cast<std::size_t>(shard_.rank) * rows;
       list.size() * num_ranks * rows < samples.size(); first += num_ranks * rows) {
    if (first < samples.size()) {
      const auto own = samples.subspan(first, std::min(rows, samples.size() - first));
      list.push_back(read(training_, own, rows_per_microbatch())[0]);
    } else {
      list.push_back(no_targets(options_.context));
    }
  }
  return Microbatches(std::move(list));
}

Microbatches BatchStream::read(const Dataset& dataset, std::span<const std::int64_t> samples,
                               std::int64_t rows) const {
  const Span span("read data");
  std::vector<Microbatch> list;
  while (!samples.empty()) {
    const auto num_rows = std::min(static_cast<std::size_t>(rows), samples.size());
    Microbatch& microbatch = list.emplace_back(dataset.read(samples.first(num_rows)));
    if (options_.is_pinned) {
      microbatch.tokens = microbatch.tokens.pin_memory();
      microbatch.targets = microbatch.targets.pin_memory();
    }
    samples = samples.subspan(num_rows);
  }
  return Microbatches(std::move(list));
}

void BatchStream::step_back() {
  seek(step_position_);
  counts_ = step_counts_;
}

void BatchStream::seek(const DataPosition& position) {
  check(position.epoch >= 0 && 0 <= position.samples && position.samples <= training_.num_samples(),
        "epoch ", position.epoch, ", sample ", position.samples,
        " is not a position in the data, which has ", training_.num_samples(),
        " samples; is this the data that the run started with?");
  position_ = position;
  select();
}

std::int64_t BatchStream::steps_per_epoch() const {
  const auto order =
      epoch_order(training_.num_samples(), options_.seed, 0, SampleOrder::kSequential);
  const auto num_samples = static_cast<std::int64_t>(shard_.select(order, 0).size());
  const std::int64_t step_samples = rows_per_microbatch() * microbatches_per_step();
  return (num_samples + step_samples - 1) / step_samples;
}

std::int64_t BatchStream::num_validation_samples() const {
  const std::int64_t num_samples = validation_.num_samples();
  const std::int64_t wanted = options_.validation_samples;
  return wanted == 0 ? num_samples : std::min(num_samples, wanted);
}

Microbatches BatchStream::validation() const {
  return read(validation_, epoch_order(num_validation_samples(), 0, 0, SampleOrder::kSequential),
              options_.microbatch_size);
}

}  // namespace ladder
