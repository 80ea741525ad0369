// config.json of a Hugging Face folder.
#include <string>

#include "common/train/pretrained/model_config.hpp"
#include "tests/fuzz/fuzz_input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  ladder::reads_or_refuses([&] {
    const ladder::ModelOptions model = ladder::parse_model_config(text, "config.json").model;
    ladder::must_hold(model.layers > 0 && model.heads > 0 && model.channels > 0 &&
                      model.context > 0 && model.vocab_size > 0 && model.mlp_channels > 0 &&
                      model.rope_theta > 0 && model.norm_eps > 0);
    const ladder::Json again = ladder::model_config_json(model, at::kFloat);
    ladder::parse_model_config(ladder::to_text(again), "what was written");
  });
  return 0;
}
