// Builds the model that every step trains: a list of layers, of any family (family.hpp).
//
// Weights start at N(0, 0.02), projections back into the residual stream at N(0, 0.02/√(2L)),
// biases at 0, norms at 1. A tensor's initial values depend only on the seed and its name, so ranks
// with different parts of a model agree on the whole. There is no dropout. Shapes: B batch, T
// tokens (≤ context), C channels, V vocabulary, L blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/model.hpp"
#include "common/model/model_options.hpp"
#include "common/model/parts.hpp"

namespace ladder {

// Builds the layers "embedding", "block0", …, "head". A tied head reads layer 0.
// Throws UsageError naming the option, as validate() does.
Model build_layers(const ModelOptions& options, std::uint64_t seed, const OnUnit& on_unit = {},
                   at::Device device = at::kCPU);

// Builds only these layers of the list, in ascending order: 0 is the embedding, 1 … L are the
// blocks, L + 1 is the head. The others are never created. If a tied head is built without the
// embedding, the token embedding is also the last tensor of its own unit, a copy with the same
// initial values, and the caller must keep the two equal. Throws CheckError for no layers, an order
// that does not ascend, or a layer that the model does not have.
Model build_layers(const ModelOptions& options, std::uint64_t seed,
                   const std::vector<std::int64_t>& layers, const OnUnit& on_unit = {},
                   at::Device device = at::kCPU);

// The same with some of options.product_parts only (parts.hpp). A unit has what all parts use, and
// these parts; the logits are those of these parts, side by side.
Model build_layers(const ModelOptions& options, std::uint64_t seed, const Parts& parts,
                   const std::vector<std::int64_t>& layers, const OnUnit& on_unit = {},
                   at::Device device = at::kCPU);

// Returns build_layers() of all layers as a function of the device, to be called later.
ModelBuilder layer_builder(const ModelOptions& options, std::uint64_t seed);

}  // namespace ladder
