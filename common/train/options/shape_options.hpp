// The options that give a model its shape, by their names without dashes.
#pragma once

#include "common/model/model_options.hpp"

namespace ladder {

// Calls visit(name, member of `model`, the same member of `other`) for each of them, but for the
// family, the context and the vocabulary, for which more than one value may be right.
template <class Visit>
void visit_shape(ModelOptions& model, const ModelOptions& other, const Visit& visit) {
  visit("layers", model.layers, other.layers);
  visit("heads", model.heads, other.heads);
  visit("kv-heads", model.kv_heads, other.kv_heads);
  visit("channels", model.channels, other.channels);
  visit("mlp-channels", model.mlp_channels, other.mlp_channels);
  visit("tie-embeddings", model.tie_embeddings, other.tie_embeddings);
  visit("rope-theta", model.rope_theta, other.rope_theta);
  visit("norm-eps", model.norm_eps, other.norm_eps);
}

}  // namespace ladder
