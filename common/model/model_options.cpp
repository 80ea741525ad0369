#include "common/model/model_options.hpp"

namespace ladder {

ModelFamily family_of(NamedModel model) {
  return model == NamedModel::kGpt2 ? ModelFamily::kGpt2 : ModelFamily::kLlama;
}

NamedModel named_model(ModelFamily family) {
  return family == ModelFamily::kGpt2 ? NamedModel::kGpt2 : NamedModel::kLlama;
}

std::optional<ModelOptions> shape_of(NamedModel model) {
  ModelOptions smollm2 = {.family = ModelFamily::kLlama,
                          .vocab_size = 49152,
                          .tie_embeddings = true,
                          .rope_theta = 100000,
                          .norm_eps = 1e-5};
  switch (model) {
    case NamedModel::kSmolLm2_135M:
      smollm2.layers = 30, smollm2.channels = 576, smollm2.mlp_channels = 1536;
      smollm2.heads = 9, smollm2.kv_heads = 3;
      return smollm2;
    case NamedModel::kSmolLm2_360M:
      smollm2.layers = 32, smollm2.channels = 960, smollm2.mlp_channels = 2560;
      smollm2.heads = 15, smollm2.kv_heads = 5;
      return smollm2;
    default:
      return std::nullopt;
  }
}

}  // namespace ladder
