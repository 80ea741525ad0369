#include "common/model/model_cost.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>

#include "common/core/check.hpp"
#include "common/model/attention_path.hpp"
#include "common/model/family.hpp"

namespace ladder {
namespace {

// ---- Activations -------------------------------------------------------------------------------

// While a weight's gradient is computed, per element: itself in fp32, and a copy of it or of the
// weight in another format.
constexpr double kBytesOfMatrix = 8;

// Of a block, per token.
std::int64_t bytes_of_input(const ModelOptions& options) {
  return options.precision.param_bytes() * options.channels;
}
std::int64_t kept_bytes_of_block(const Family& family, AttentionPath path) {
  switch (family.options().recompute) {
    case Recompute::kNone:
      return family.saved_bytes_of_block(path);
    case Recompute::kCheap:
      return family.saved_bytes_of_block(path) - family.bytes_of_cheap_outputs();
    case Recompute::kBlocks:
      return bytes_of_input(family.options());
  }
  throw CheckError("--recompute: no such way");
}

// Of one owner: the tokens of its parts, of which some have one more than others.
std::int64_t tokens_of_owner(const ModelOptions& options, int num_owners) {
  const std::int64_t parts = options.product_parts, own = parts / num_owners;
  return std::min(options.vocab_size, own * ((options.vocab_size + parts - 1) / parts));
}

double embedding_numel(const ModelOptions& options, int num_owners) {
  return static_cast<double>(tokens_of_owner(options, num_owners)) *
         static_cast<double>(options.channels);
}

// Rows of logits start at multiples of 64 on a GPU (modules.cpp), which keeps them; on the CPU, the
// loss is computed in fp32, and log_softmax saves its output. The head's product saves its input.
// So does the loss of parts, wherever it is computed.
std::int64_t saved_bytes_of_head(const Family& family, AttentionPath path, int num_owners = 1) {
  const ModelOptions& options = family.options();
  const std::int64_t e = options.precision.param_bytes(), V = tokens_of_owner(options, num_owners);
  const bool is_kernel = path == AttentionPath::kOnGpu && options.product_parts == 1;
  return family.saved_bytes_of_norm() + e * options.channels +
         (is_kernel ? e * ((V + 63) / 64 * 64) + 8 : 4 * V);
}

// First the gradient of the logits is there, beside what the loss has saved; then its product.
// oneDNN copies what it transposes, and 16-bit numbers are widened for a CPU that cannot multiply
// them.
double working_bytes_of_head(const ModelOptions& options, double tokens, Device device,
                             int num_owners) {
  const auto V = static_cast<double>(tokens_of_owner(options, num_owners)),
             C = static_cast<double>(options.channels);
  const bool is_narrow = options.precision.has_16_bit_params(), is_gpu = device.is_cuda();
  const double loss = is_gpu && is_narrow ? 2 * (V + 63) : 4 * (V + (is_gpu ? 63 : 0));
  const double copies = is_gpu ? 0 : is_narrow ? 6 * V : 4 * V;
  return std::max(tokens * loss, tokens * (copies + 4 * C) +
                                     kBytesOfMatrix * embedding_numel(options, num_owners));
}

// A dense gradient of all tokens, in fp32, and what it is rounded to; and that of the positions.
double working_bytes_of_embedding(const ModelOptions& options, double tokens, int num_owners) {
  const auto C = static_cast<double>(options.channels);
  return (options.precision.has_16_bit_params() ? 6 : 4) * embedding_numel(options, num_owners) +
         4 * C * (2 * tokens + static_cast<double>(options.context));
}

// Per token: partial products, or gradients, that wait for others (parts.hpp), the next one, and
// their sum; and a copy to add up with other owners.
std::int64_t bytes_of_waiting_parts(const ModelOptions& options, int num_owners) {
  const auto own = static_cast<std::uint64_t>(options.product_parts / num_owners);
  return ((own == 1 ? 0 : std::bit_width(own - 1) + 2) + (num_owners > 1)) *
         bytes_of_input(options);
}

// The CPU's fused kernel goes through tiles of the scores, of 256 times 512 at most, and keeps two
// of them for each thread, beside rows of queries.
double bytes_of_attention_per_thread(const ModelOptions& options) {
  const auto T = static_cast<double>(options.context);
  const auto d = static_cast<double>(head_channels_of(options));
  return 4 * std::min(T, 256.0) * (2 * std::min(T, 512.0) + 4 + 2 * d);
}

// Flash attention's backward adds up gradients of the queries in fp32; to do so in a fixed order,
// it has as many of them as keep all multiprocessors busy, of which an H100 has 132.
double bytes_of_deterministic_attention(const ModelOptions& options, double num_rows) {
  const double parts = 1 + std::ceil(132 / (num_rows * static_cast<double>(options.heads)));
  return parts * num_rows * 4 * static_cast<double>(options.context * query_channels_of(options));
}

}  // namespace

std::int64_t saved_activation_bytes(const ModelOptions& options, std::int64_t num_rows) {
  const std::unique_ptr<Family> family = family_of(options);
  const AttentionPath path = attention_path(options.precision.params);
  return num_rows * options.context *
         (options.layers * kept_bytes_of_block(*family, path) + saved_bytes_of_head(*family, path));
}

std::int64_t loss_bytes(const ModelOptions& options, std::int64_t num_rows) {
  return num_rows * options.context * 4 * options.vocab_size;
}

std::vector<LayerActivations> layer_activations(const ModelOptions& options, double num_rows,
                                                Device device, int num_threads, int num_owners,
                                                bool cuts_rows) {
  const std::unique_ptr<Family> family = family_of(options);
  const double tokens = num_rows * static_cast<double>(options.context);
  std::vector<LayerActivations> layers(static_cast<std::size_t>(options.layers + 2));
  LayerActivations block, &embedding = layers.front(), &head = layers.back();
  for (const AttentionPath path : attention_paths(options.precision.params, device)) {
    // What each owner has, and its share of the rest.
    const auto raise = [&](double& most, std::int64_t bytes_per_token, std::int64_t of_each) {
      const std::int64_t shared = bytes_per_token - of_each;
      most = std::max(most, tokens * static_cast<double>(of_each + shared / num_owners));
    };
    const std::int64_t all = family->saved_bytes_of_block(path),
                       kept = kept_bytes_of_block(*family, path),
                       working = family->working_bytes_of_block(path);
    // Rows that were gathered are kept, even if they are cheap to compute.
    const std::int64_t gathered = 2 * bytes_of_input(options);
    const bool is_cheap = options.recompute == Recompute::kCheap;
    const std::int64_t whole = cuts_rows ? gathered : family->saved_bytes_of_all_parts();
    const std::int64_t of_each =
        cuts_rows && is_recomputed(options, /*layer=*/1) ? 0 : std::min(kept, whole);
    raise(block.saved, kept + (cuts_rows && is_cheap ? gathered : 0), of_each);
    raise(block.recomputed, all - kept, whole - of_each);
    raise(block.working, working, std::min(working, 4 * bytes_of_input(options)));
    raise(head.saved, saved_bytes_of_head(*family, path, num_owners),
          saved_bytes_of_head(*family, path, num_owners));
  }
  const double shared = options.tie_embeddings ? 4 * embedding_numel(options, num_owners) : 0;
  block.working +=
      shared + kBytesOfMatrix * static_cast<double>(family->largest_matrix_of_block()) / num_owners;
  block.working += device.is_cuda() ? bytes_of_deterministic_attention(options, num_rows)
                                    : num_threads * bytes_of_attention_per_thread(options);
  if (options.recompute ==
      Recompute::kBlocks)  // its output's gradient waits for the backward inside
    block.working += tokens * static_cast<double>(bytes_of_input(options));
  const double waiting = tokens * static_cast<double>(bytes_of_waiting_parts(options, num_owners));
  block.working += waiting;
  std::fill(layers.begin() + 1, layers.end() - 1, block);
  embedding.working = shared + working_bytes_of_embedding(options, tokens, num_owners) + waiting;
  head.working = working_bytes_of_head(options, tokens, device, num_owners) + waiting;
  if (options.product_parts > 1)  // logits are there in parts, and then side by side; sums of rows
    head.working += tokens * static_cast<double>(options.precision.param_bytes() *
                                                     tokens_of_owner(options, num_owners) +
                                                 12 * (num_owners + 6));
  return layers;
}

double most_activation_bytes(const std::vector<LayerActivations>& layers) {
  double saved = 0, most = 0;
  for (const LayerActivations& layer : layers) {
    saved += layer.saved;
    most = std::max(most, saved + layer.recomputed + layer.working);
  }
  return most;
}

std::vector<std::int64_t> forward_flops(const ModelOptions& options) {
  const std::unique_ptr<Family> family = family_of(options);
  std::vector<std::int64_t> flops(static_cast<std::size_t>(options.layers + 2),
                                  family->flops_of_block());
  flops.front() = 0;
  flops.back() = family->flops_of_head();
  return flops;
}

std::vector<std::int64_t> backward_flops(const ModelOptions& options) {
  std::vector<std::int64_t> flops = forward_flops(options);
  for (std::size_t layer = 0; layer < flops.size(); ++layer)
    flops[layer] *= is_recomputed(options, static_cast<std::int64_t>(layer)) ? 3 : 2;
  return flops;
}

}  // namespace ladder
