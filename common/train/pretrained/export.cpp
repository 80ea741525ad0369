#include "common/train/pretrained/export.hpp"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>

#include <cmath>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/data/bpe/bpe_tokenizer.hpp"
#include "common/data/chat_format.hpp"
#include "common/model/build_layers.hpp"
#include "common/train/build_model.hpp"
#include "common/train/checkpoint/checkpoint.hpp"
#include "common/train/checkpoint/disk.hpp"
#include "common/train/options/option_values.hpp"
#include "common/train/pretrained/model_config.hpp"
#include "common/train/pretrained/tokenizer_folder.hpp"
#include "common/train/start.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;

// Names and shapes of the model's parameters, without their memory.
StateTensors shapes_of(const TrainOptions& options) {
  return whole_tensors(model_builder(options)(/*on_unit=*/{}, at::kMeta).leaves());
}

// transformers' name of a parameter.
std::string exported_name(const std::string& name, ModelFamily family) {
  if (name == "lm_head.weight") return name;
  return (family == ModelFamily::kGpt2 ? "transformer." : "model.") + name;
}

void write_weights(const fs::path& checkpoint, const std::string& tokenizer,
                   const TrainOptions& options, at::ScalarType dtype, const fs::path& path) {
  TrainState state;
  state.parameters = shapes_of(options);
  state.tokenizer = tokenizer;
  std::vector<StoredTensor> exported = state.parameters.stored;
  for (StoredTensor& tensor : exported)
    tensor = {exported_name(tensor.name, options.model.family), dtype, tensor.shape};
  SafetensorsWriter writer(path, exported, {{"format", "pt"}});
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const StoredTensor& tensor : state.parameters.stored) shapes[tensor.name] = tensor.shape;
  state.parameters.fill = [&](const std::string& name, const TensorVisitor& read) {
    const at::Tensor values = at::empty(shapes.at(name), at::kFloat);
    read(name, values);
    const at::Tensor narrow = values.to(dtype);
    const auto [least, most] = at::aminmax(narrow);
    check_usage(std::isfinite(least.item<float>()) && std::isfinite(most.item<float>()), "\"", name,
                "\" has values that --dtype ", format_name(dtype),
                " cannot hold: export it as fp32");
    writer.write(narrow);
  };
  load_parameters(checkpoint, state);
  writer.finish();
}

void write_json(const fs::path& path, const Json& json) {
  write_text_file(path, to_text(json, 2) + "\n");
}

// Their ids; null for a model of tokens that nobody knows.
struct SpecialTokens {
  Json end_of_text, padding;
  Json all_ends;  // what ends a text when it is generated: one id, or a list
};

Json with_tokens(Json config, const SpecialTokens& tokens) {
  config["bos_token_id"] = tokens.end_of_text;
  config["eos_token_id"] = tokens.all_ends;
  config["pad_token_id"] = tokens.padding;
  return config;
}

// Changes a file of settings, which is a new one if it is missing.
void edit_json(const fs::path& path, const nlohmann::json& changes) {
  auto settings = nlohmann::json::object();
  if (fs::exists(path)) settings = parse_sorted_json(read_text_file(path), path);
  settings.update(changes);
  write_json(path, settings);
}

// Says which token ends a text, and that tokenizer.json is to be read as it is: all other classes
// of transformers build a pre-tokenizer of their own.
void write_settings(const std::string& end, const fs::path& to) {
  const bool is_pair = !fs::exists(to / "tokenizer.json");
  edit_json(to / "tokenizer_config.json",
            {{"eos_token", end},
             {"tokenizer_class", is_pair ? "GPT2Tokenizer" : "PreTrainedTokenizerFast"}});
  if (fs::exists(to / "special_tokens_map.json"))  // may count more
    edit_json(to / "special_tokens_map.json", {{"eos_token", end}});
}

SpecialTokens write_tokenizer(const std::string& name, const fs::path& checkpoint,
                              const ModelOptions& model, bool is_chat, const fs::path& to) {
  if (name == "token file") return {};
  if (name == "bytes") {
    write_json(to / "tokenizer.json", byte_tokenizer_json());
    write_json(to / "tokenizer_config.json", byte_tokenizer_config_json(model.context));
    return {ByteTokenizer::kEndOfText, ByteTokenizer::kPadding, ByteTokenizer::kEndOfText};
  }
  const fs::path kept = kept_tokenizer(checkpoint, name);
  copy_tokenizer_files(kept, to);
  const BpeDescription description = read_bpe_files(kept);
  const BpeTokenizer tokenizer(description);
  if (is_chat) write_text_file(to / "chat_template.jinja", chat_template());
  // What ends this run's rows. The model may still have learned other ends before.
  const std::uint32_t end =
      is_chat ? ChatFormat(tokenizer).end_of_message() : tokenizer.end_of_text();
  write_settings(is_chat ? kEndOfMessage : description.end_of_text, to);
  const SpecialTokens tokens = {end, tokenizer.padding(), text_ends(end, kept)};
  if (fs::exists(to / "generation_config.json"))
    edit_json(to / "generation_config.json", {{"eos_token_id", tokens.all_ends}});
  return tokens;
}

}  // namespace

void export_checkpoint(const fs::path& checkpoint, const fs::path& folder, at::ScalarType dtype) {
  const LoadedCheckpoint saved = describe_checkpoint(checkpoint);
  TrainOptions options;
  options.model = Start(checkpoint).model();
  PartialFolder partial(folder, folder.string());
  const fs::path& to = partial.path();
  const bool is_chat = saved.config.value("rows", Json()) == "chat";
  const SpecialTokens tokens =
      write_tokenizer(saved.tokenizer, checkpoint, options.model, is_chat, to);
  write_json(to / "config.json", with_tokens(model_config_json(options.model, dtype), tokens));
  if (!fs::exists(to / "generation_config.json"))
    write_json(to / "generation_config.json", with_tokens({{"_from_model_config", true}}, tokens));
  write_weights(checkpoint, saved.tokenizer, options, dtype, to / "model.safetensors");
  partial.complete();
}

}  // namespace ladder
