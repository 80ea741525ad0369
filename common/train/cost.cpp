#include "common/train/cost.hpp"

#include <algorithm>
#include <cmath>

namespace ladder {

StateBytes replica_state_bytes(const TrainOptions& options) {
  const std::int64_t elements = layout_of(options).numel;
  return {.parameters = options.model.precision.param_bytes() * elements,
          .gradients = options.model.precision.grad_bytes() * elements,
          .optimizer = optimizer_bytes(options, elements)};
}

std::int64_t optimizer_bytes(const TrainOptions& options, std::int64_t numel) {
  const bool has_masters =
      options.model.precision.has_16_bit_params() && options.optimizer.masters == Masters::kFp32;
  const std::int64_t moments = options.optimizer.kind == OptimizerKind::kAdamW ? 8 : 0;
  return ((has_masters ? 4 : 0) + moments) * numel;
}

double fold_bytes(const TrainOptions& options, std::int64_t numel, std::int64_t bytes_each,
                  int world_size) {
  if (options.device.is_cuda() && options.nccl.reduction == Reduction::kNative) return 0;
  const std::int64_t slice = (numel + world_size - 1) / world_size;
  return static_cast<double>(world_size - 1) * static_cast<double>(slice * bytes_each);
}

std::int64_t largest_unit(const FlatLayout& layout) {
  std::int64_t numel = 0;
  for (const FlatUnit& unit : layout.units) numel = std::max(numel, unit.numel);
  return numel;
}

int layer_at(const FlatLayout& layout, std::int64_t start) {
  const auto next = std::ranges::upper_bound(layout.units, start, {}, &FlatUnit::start);
  return static_cast<int>(next - layout.units.begin()) - 1;
}

std::vector<LayerActivations> layer_activations(const TrainOptions& options, int num_owners,
                                                bool cuts_rows) {
  const std::int64_t rows = batch_shape(options).rows_per_sample * options.data.microbatch_size;
  return layer_activations(options.model, static_cast<double>(rows), options.device,
                           options.num_threads, num_owners, cuts_rows);
}

std::int64_t working_bytes(const TrainOptions& options, double most_activations,
                           const Buffers& buffers, std::int64_t num_replicas) {
  const Precision& precision = options.model.precision;
  const bool is_gpu = options.device.is_cuda();
  const std::int64_t evaluated =
      options.output.eval_every > 0 ? options.data.validation_samples : 0;
  const std::int64_t rows =
      batch_shape(options).rows_per_sample * (rows_per_step(options, num_replicas) + evaluated);
  const double tokens = 16.0 * static_cast<double>(rows * options.model.context);
  const bool has_masters = options.optimizer.masters == Masters::kFp32;
  const double scratch =
      4.0 * kWidePiece *
      ((precision.has_16_bit_params() && !has_masters) + (is_16_bit(precision.grads) && !is_gpu));
  const double rotary =
      4.0 * static_cast<double>(options.model.context * head_channels_of(options.model));
  // Scalars and block sums; on a GPU also cuBLAS's workspaces, of 32 MiB for each of two libraries.
  const double rest = is_gpu ? 72 << 20 : 16 << 10;
  const double most = std::max(most_activations + buffers.in_backward, buffers.after);
  return static_cast<std::int64_t>(
      std::min(std::ceil(most + tokens + scratch + rotary + rest), 0x1p62));
}

std::int64_t working_bytes(const TrainOptions& options, const Buffers& buffers,
                           std::int64_t num_replicas) {
  return working_bytes(options, most_activation_bytes(layer_activations(options)), buffers,
                       num_replicas);
}

}  // namespace ladder
