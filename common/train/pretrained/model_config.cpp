#include "common/train/pretrained/model_config.hpp"

#include <nlohmann/json.hpp>

#include "common/core/check.hpp"
#include "common/core/listed.hpp"

namespace ladder {
namespace {

ModelFamily family_named(const std::string& type, const std::string& path) {
  std::vector<const char*> known;
  for (const ModelFamily family : all_families()) {
    known.push_back(traits_of(family).name());
    if (type == known.back()) return family;
  }
  throw CheckError(concat(path, ": \"model_type\" is \"", excerpt(type), "\", Ladder reads ",
                          listed(known), ": ", ConfigReader::kAdvice));
}

}  // namespace

ModelConfig parse_model_config(const std::string& text, const std::string& path) {
  ConfigReader config(text, path);
  const ModelFamily family = family_named(config.text("model_type"), path);
  // What would make another function of the same weights, in all families.
  config.only("quantization_config", {nullptr}, "take the model as it was before it was quantized");
  for (const char* name : {"is_encoder_decoder", "add_cross_attention"}) config.only(name, {false});
  config.only("pruned_heads", {SortedJson::object()});
  ModelConfig found = traits_of(family).read(config);
  found.model.family = family;
  config.refuse_unknown(traits_of(family).name());
  return found;
}

Json model_config_json(const ModelOptions& model, at::ScalarType dtype) {
  const FamilyTraits& traits = traits_of(model.family);
  Json json = traits.write(model);
  json["model_type"] = traits.name();
  json["tie_word_embeddings"] = model.tie_embeddings;
  json["torch_dtype"] = dtype == at::kHalf       ? "float16"
                        : dtype == at::kBFloat16 ? "bfloat16"
                                                 : "float32";
  return json;
}

}  // namespace ladder
