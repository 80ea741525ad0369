#include "common/train/memory_need.hpp"

#include <algorithm>
#include <cmath>

#include "common/comm/launcher_environment.hpp"
#include "common/core/amounts.hpp"
#include "common/core/check.hpp"
#include "common/model/model_cost.hpp"
#include "common/train/cost.hpp"
#include "common/train/layout.hpp"

namespace ladder {
namespace {

// A quantity of a model with any number of layers. All blocks are alike, so two small models tell.
template <class Quantity>
double of_all_layers(ModelOptions model, const Quantity& quantity) {
  const auto more = static_cast<double>(model.layers - 1);
  model.layers = 1;
  const auto one = static_cast<double>(quantity(model));
  model.layers = 2;
  return one + more * (static_cast<double>(quantity(model)) - one);
}

double num_elements(const TrainOptions& options) {
  return of_all_layers(options.model, [&](const ModelOptions& model) {
    TrainOptions smaller = options;
    smaller.model = model;
    return layout_of(smaller).numel;
  });
}

double activation_bytes_per_row(const TrainOptions& options) {
  return of_all_layers(options.model, [](const ModelOptions& model) {
    return saved_activation_bytes(model, /*num_rows=*/1) + loss_bytes(model, 1);
  });
}

// Of an optimizer step on one replica.
double samples_per_step(const TrainOptions& options) {
  const BatchShape batch = batch_shape(options);
  return 1.0 * options.data.microbatch_size * options.data.num_microbatches *
         batch.flushes_per_step * batch.replicas_per_rank;
}

std::string model_options(const TrainOptions& options) {
  const ModelOptions& model = options.model;
  return concat("--layers ", model.layers, ", --channels ", model.channels, ", --context ",
                model.context, ", --vocab-size ", model.vocab_size);
}

std::string batch_options(const TrainOptions& options) {
  const std::int64_t count = options.data.num_microbatches;
  return concat("--micro-batch-size ", options.data.microbatch_size,
                count == 1 ? "" : concat(", --num-microbatches ", count),
                batch_shape(options).multiplied);
}

std::string in_words(double bytes) {
  return format_bytes(static_cast<std::int64_t>(std::min(bytes, 0x1p62)));
}

}  // namespace

Ranks ranks_here(const TrainOptions& options) {
  const int in_world = num_ranks_of(options);
  const bool are_threads = options.transport == Transport::kThreads;
  return {in_world, are_threads ? in_world : std::min(in_world, launched_local_ranks())};
}

MemoryNeed memory_need(const TrainOptions& options, const Ranks& ranks, int ranks_per_replica,
                       double num_samples) {
  const BatchShape batch = batch_shape(options);
  const bool is_cut = ranks_per_replica > 1;
  const int num_replicas = ranks.in_world / ranks_per_replica;
  // Stages differ, and which of them are here is not known: they count if it is all of them.
  const double replicas_here = !is_cut                        ? ranks.here
                               : ranks.here == ranks.in_world ? num_replicas
                                                              : 0;
  const double num_readers = 1.0 * num_replicas * batch.num_data_parts;
  const double most_samples = std::max(1.0, std::floor(num_samples / num_readers));
  const double most_each = std::max(1.0, std::floor(most_samples / batch.replicas_per_rank));
  const double microbatch =
      batch.rows_per_sample * std::min(1.0 * options.data.microbatch_size, most_each);
  const double step = batch.rows_per_sample * std::min(samples_per_step(options), most_samples);
  constexpr double kTokenBytes = 2 * sizeof(std::int64_t);  // its id and its target
  MemoryNeed need;
  need.tokens = ranks.here * step * options.model.context * kTokenBytes;
  if (options.device.is_cuda()) return need;
  need.activations = replicas_here * microbatch * activation_bytes_per_row(options);
  const Precision& precision = options.model.precision;
  const std::int64_t bytes_each =
      precision.param_bytes() + precision.grad_bytes() + optimizer_bytes(options, 1);
  const double shares_here = is_cut ? replicas_here : 1.0 * ranks.here / ranks.in_world;
  need.state = shares_here * bytes_each * num_elements(options);
  return need;
}

void check_memory(const TrainOptions& options, const Theory& theory, const Ranks& ranks,
                  double limit_bytes, const std::function<double()>& count_samples) {
  check_is_countable(options);
  const int per_replica = theory.mesh(options, ranks.in_world).ranks_per_replica();
  MemoryNeed need = memory_need(options, ranks, per_replica);
  // With whole replicas, all ranks are alike.
  if (need.state <= limit_bytes && per_replica == 1 && options.device.is_cpu()) {
    const StateBytes state = theory.state_bytes(options, ranks.in_world, /*rank=*/0);
    need.state = ranks.here * static_cast<double>(state.total());
  }
  if (need.state <= limit_bytes && need.total() > limit_bytes) {
    const MemoryNeed of_data = memory_need(options, ranks, per_replica, count_samples());
    need.activations = of_data.activations;
    need.tokens = of_data.tokens;
  }
  check_usage(need.total() <= limit_bytes, "this run needs at least ", in_words(need.total()),
              ranks.here > 1 ? concat(" for the ", ranks.here, " ranks on this machine") : "",
              ", but it can have at most ", in_words(limit_bytes), ": ", in_words(need.state),
              " for parameters, gradients and optimizer (", model_options(options), "), ",
              in_words(need.activations), " for the activations of a microbatch, ",
              in_words(need.tokens), " for the token ids of a step (", batch_options(options),
              "); choose smaller ones, and see with --dry-run what they take");
}

void check_is_countable(const TrainOptions& options) {
  constexpr double kMostElements = 0x1p40, kMostBytes = 0x1p62, kMostReplicas = 1e6;
  const double elements = num_elements(options);
  check_usage(elements <= kMostElements, model_options(options), " make a model of ", elements,
              " parameters, more than Ladder computes with; choose smaller ones");
  const double samples = samples_per_step(options) * batch_shape(options).rows_per_sample;
  const double tokens = samples * options.model.context;
  check_usage(tokens * kMostReplicas <= kMostBytes &&
                  samples * activation_bytes_per_row(options) <= kMostBytes,
              batch_options(options), ", --context ", options.model.context, " make a step of ",
              tokens, " tokens, more than Ladder computes with; choose smaller ones");
  const double microbatches =
      1.0 * options.data.num_microbatches * batch_shape(options).flushes_per_step;
  check_usage(16 * elements * microbatches <= kMostBytes, model_options(options),
              " with --num-microbatches ", options.data.num_microbatches,
              " send more bytes per step than Ladder computes with; choose smaller ones");
}

}  // namespace ladder
