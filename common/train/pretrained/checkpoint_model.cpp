#include "common/train/pretrained/checkpoint_model.hpp"

#include "common/core/check.hpp"
#include "common/core/json_problem.hpp"
#include "common/model/build_layers.hpp"
#include "common/train/checkpoint/checkpoint.hpp"
#include "common/train/options/option_table.hpp"

namespace ladder {

ModelOptions model_of_checkpoint(const std::filesystem::path& checkpoint) {
  const Json config = describe_checkpoint(checkpoint).config;
  const std::string path = checkpoint / "state.json";
  TrainOptions options;
  ModelOptions& model = options.model;
  const SafetensorsReader stored(checkpoint / "model.safetensors");
  for (const auto& [name, dtype, shape] : stored.tensors()) {
    const bool is_of_llama = name == "embed_tokens.weight";
    if (is_of_llama) model.family = ModelFamily::kLlama;
    if ((is_of_llama || name == "wte.weight") && !shape.empty()) model.vocab_size = shape[0];
    if (name == "lm_head.weight") model.tie_embeddings = false;
  }
  model.layers = count_in(config, "layers", path);
  model.heads = count_in(config, "heads", path);
  model.channels = count_in(config, "channels", path);
  model.context = count_in(config, "context", path);
  try {  // older checkpoints have only the options above
    model.kv_heads = config.value("kv-heads", model.kv_heads);
    model.mlp_channels = config.value("mlp-channels", model.mlp_channels);
    model.rope_theta = config.value("rope-theta", model.rope_theta);
    model.norm_eps = config.value("norm-eps", model.norm_eps);
    check_ranges(options);
    return completed(model);
  } catch (const Json::exception& error) {
    throw CheckError(concat(path, ": damaged: ", json_problem(error.what())));
  } catch (const UsageError& error) {
    throw CheckError(concat(path, ": damaged: ", error.what()));
  }
}

}  // namespace ladder
