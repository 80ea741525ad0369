#include "common/train/export.hpp"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/core/torch_types.hpp"
#include "common/data/bpe/bpe_tokenizer.hpp"
#include "common/data/encoded_file.hpp"
#include "common/model/build_layers.hpp"
#include "common/model/family.hpp"
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

// transformers' name of a parameter.
std::string exported_name(const std::string& name, ModelFamily family) {
  if (name == "lm_head.weight") return name;
  return traits_of(family).prefix() + name;
}

// `unused`: learned positions after those of the checkpoint, if they are defined.
void write_weights(const fs::path& checkpoint, const std::string& tokenizer,
                   const TrainOptions& options, const at::Tensor& unused, at::ScalarType dtype,
                   const fs::path& path) {
  const std::string positions =
      unused.defined() ? traits_of(options.model.family).positions_name() : "";
  TrainState state;
  state.parameters = shapes_of_parameters(options);
  state.tokenizer = tokenizer;
  std::vector<StoredTensor> exported = state.parameters.stored;
  for (StoredTensor& tensor : exported) {
    if (tensor.name == positions) tensor.shape[0] += unused.size(0);
    tensor = {exported_name(tensor.name, options.model.family), dtype, tensor.shape};
  }
  SafetensorsWriter writer(path, exported, {{"format", "pt"}});
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const StoredTensor& tensor : state.parameters.stored) shapes[tensor.name] = tensor.shape;
  state.parameters.fill = [&](const std::string& name, const TensorVisitor& read) {
    const at::Tensor values = at::empty(shapes.at(name), at::kFloat);
    read(name, values);
    const at::Tensor narrow = (name == positions ? at::cat({values, unused}) : values).to(dtype);
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

// What begins, ends and pads a text, by transformers' names: `tokens` as generation_tokens() gives
// them, after what ends this run's rows. An id that the model does not have is left out: it is a
// default of a class in transformers. Null says that there is none; without it, transformers would
// take that default.
Json known_tokens(const std::optional<std::uint32_t>& end, const Json& tokens,
                  std::int64_t vocab_size) {
  const auto is_known = [&](const Json& id) {
    return id.is_number_unsigned() &&
           id.get<std::uint64_t>() < static_cast<std::uint64_t>(vocab_size);
  };
  Json ends = Json::array();
  if (end) ends.push_back(*end);
  for (const Json& id : tokens.at("eos_token_id"))
    if (is_known(id) && std::ranges::find(ends, id) == ends.end()) ends.push_back(id);
  Json known = {{"bos_token_id", nullptr}, {"eos_token_id", ends}, {"pad_token_id", nullptr}};
  if (ends.size() < 2) known["eos_token_id"] = ends.empty() ? Json() : Json(ends[0]);
  for (const char* name : {"bos_token_id", "pad_token_id"})
    if (is_known(tokens.at(name))) known[name] = tokens.at(name);
  return known;
}

// Changes a file of settings, which is a new one if it is missing.
void edit_json(const fs::path& path, const nlohmann::json& changes) {
  auto settings = nlohmann::json::object();
  if (fs::exists(path)) settings = parse_sorted_json(read_text_file(path), path);
  settings.update(changes);
  // transformers 5 writes a list under this name, where version 4 expects an object. Both read the
  // older name.
  if (settings.contains("extra_special_tokens") && settings["extra_special_tokens"].is_array()) {
    settings["additional_special_tokens"] = settings["extra_special_tokens"];
    settings.erase("extra_special_tokens");
  }
  write_json(path, settings);
}

// Whether the tokenizer's settings have this one, and it is not null.
bool is_named(const fs::path& folder, const char* name) {
  for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"}) {
    if (!fs::exists(folder / file)) continue;
    const auto settings = parse_sorted_json(read_text_file(folder / file), folder / file);
    if (JsonSettings(settings, folder / file, "").has(name)) return true;
  }
  return false;
}

// Lists all added tokens in tokenizer.json, by their ids, whichever file of the source has them:
// readers besides transformers look nowhere else. The older vocab.json and merges.txt become that
// file.
void write_tokenizer_json(const BpeDescription& description, const fs::path& to) {
  const fs::path path = to / "tokenizer.json";
  SortedJson file;
  if (fs::exists(path)) {
    file = parse_sorted_json(read_text_file(path), path);
  } else {
    file = byte_tokenizer_json();
    file["pre_tokenizer"]["use_regex"] = true;
    SortedJson& merges = file["model"]["merges"] = SortedJson::array();
    for (const auto& [left, right] : description.merges) merges.push_back(concat(left, ' ', right));
    file["model"]["vocab"] = description.vocabulary;
    for (const char* name : {"vocab.json", "merges.txt"}) fs::remove(to / name);
  }
  auto added = SortedJson::array();
  for (const AddedToken& token : description.added) added.emplace_back(added_token_json(token));
  if (std::exchange(file["added_tokens"], added) != added) write_json(path, file);
}

// The tokens that begin, end and pad a text, as they are written.
nlohmann::json named_tokens(const Json& padding, const BpeDescription& description,
                            const fs::path& to) {
  nlohmann::json named = {{"eos_token", description.end_of_text}};
  if (!description.begin_of_text.empty()) named["bos_token"] = description.begin_of_text;
  if (is_named(to, "pad_token")) return named;
  for (const AddedToken& token : description.added)
    if (token.id == padding) named["pad_token"] = token.content;
  return named;
}

// Says which tokens a text has besides its own, and that tokenizer.json is to be read as it is. What
// its post-processor adds, rows of documents and pairs have as well. All other classes of
// transformers build a pre-tokenizer of their own. Before version 5, that class itself makes the
// prefix space what this file says, and calls the model with an input that it does not have, unless
// the file names the inputs.
void write_settings(const nlohmann::json& named, const BpeDescription& description,
                    const fs::path& to) {
  nlohmann::json settings = {{"add_bos_token", !description.begin_of_text.empty()},
                             {"add_eos_token", description.adds_end_of_text},
                             {"add_prefix_space", description.stages.back().adds_prefix_space},
                             {"model_input_names", {"input_ids", "attention_mask"}},
                             {"tokenizer_class", "PreTrainedTokenizerFast"}};
  settings.update(named);
  edit_json(to / "tokenizer_config.json", settings);
  if (fs::exists(to / "special_tokens_map.json"))  // may count more
    edit_json(to / "special_tokens_map.json", named);
}

// Returns its tokens, as known_tokens() does.
Json write_tokenizer(const std::string& name, const fs::path& checkpoint, const ModelOptions& model,
                     const fs::path& to) {
  if (name == "token file")
    return known_tokens({}, generation_tokens(kept_settings(checkpoint)), model.vocab_size);
  if (name == "bytes") {
    write_json(to / "tokenizer.json", byte_tokenizer_json());
    write_json(to / "tokenizer_config.json", byte_tokenizer_config_json(model.context));
    return {{"bos_token_id", ByteTokenizer::kEndOfText},
            {"eos_token_id", ByteTokenizer::kEndOfText},
            {"pad_token_id", ByteTokenizer::kPadding}};
  }
  const fs::path kept = kept_tokenizer(checkpoint, name);
  if (is_of_encoded(name)) {  // ./ladder encode has made the files what an export needs
    for (const fs::directory_entry& file : fs::directory_iterator(kept))
      copy_file_to_disk(file, to / file.path().filename());
    return known_tokens({}, generation_tokens(kept), model.vocab_size);
  }
  copy_tokenizer_files(kept, to);
  const BpeDescription description = read_bpe_files(kept);
  const BpeTokenizer tokenizer(description);
  write_tokenizer_json(description, to);
  // What ends this run's rows. The model may still have learned other ends before.
  Json tokens = generation_tokens(kept);
  if (description.eos) tokens["eos_token_id"].push_back(*description.eos);
  tokens = known_tokens(tokenizer.end_of_text(), tokens,
                        std::max(model.vocab_size, tokenizer.vocab_size()));
  if (description.bos && (tokens["bos_token_id"].is_null() || tokenizer.begin_of_text()))
    tokens["bos_token_id"] = *description.bos;
  if (tokens["pad_token_id"].is_null()) tokens["pad_token_id"] = tokenizer.padding();
  write_settings(named_tokens(tokens["pad_token_id"], description, to), description, to);
  return tokens;
}

// Learned positions that the folder from which the run started has beyond the run's context.
// Undefined if there are none.
at::Tensor unused_positions(const ModelOptions& model, const fs::path& checkpoint) {
  const fs::path path = kept_settings(checkpoint) / kUnusedPositions;
  if (!fs::exists(path)) return {};
  SafetensorsReader file(path);
  const StoredTensor& stored = file.tensors().at(0);
  check(stored.shape.size() == 2 && stored.shape[1] == model.channels, path.string(), ": \"",
        excerpt(stored.name), "\" is ", type_and_shape(stored), ", which is of another model");
  const at::Tensor unused = at::empty(stored.shape, at::kFloat);
  file.read(stored.name, unused);
  return unused;
}

// How transformers 5 splits the text of any qwen2 model, whatever its tokenizer.json says.
bool is_split_as_qwen2(const BpeDescription& tokenizer) {
  constexpr const char* kPattern =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
      R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::vector<PreTokenizerStage>& stages = tokenizer.stages;
  return tokenizer.is_nfc && stages.size() == 2 && stages[0].pattern == kPattern &&
         stages[0].removed == Removed::kNothing && stages[1].pattern.empty() &&
         !stages[1].adds_prefix_space;
}

// The longest text that the model may read, and its window. Rotary positions have no end, so a run
// may have trained with a part of what the model that it started from can read.
std::pair<std::int64_t, std::int64_t> reach_of(const ModelOptions& model,
                                               const fs::path& checkpoint) {
  const fs::path config = kept_settings(checkpoint) / "config.json";
  if (!traits_of(model.family).has_rotary_positions() || !fs::exists(config))
    return {model.context, 0};
  const ModelConfig start = parse_model_config(read_text_file(config), config);
  return {std::max(model.context, start.model.context),
          start.window < model.context ? 0 : start.window};
}

}  // namespace

std::string export_checkpoint(const fs::path& checkpoint, const fs::path& folder,
                              at::ScalarType dtype) {
  const LoadedCheckpoint saved = describe_checkpoint(checkpoint);
  TrainOptions options;
  options.model = Start(checkpoint).model();
  const at::Tensor unused = unused_positions(options.model, checkpoint);
  const auto [positions, window] = reach_of(options.model, checkpoint);
  ModelOptions model = options.model;  // as it is exported
  model.context = unused.defined() ? model.context + unused.size(0) : positions;
  PartialFolder partial(folder);
  const fs::path& to = partial.path();
  const Json tokens = write_tokenizer(saved.tokenizer, checkpoint, model, to);
  Json config = model_config_json(model, dtype);
  if (window != 0) config["sliding_window"] = window;
  config.update(tokens);
  write_json(to / "config.json", config);
  nlohmann::json generation = tokens;
  if (!fs::exists(to / "generation_config.json")) generation["_from_model_config"] = true;
  edit_json(to / "generation_config.json", generation);
  write_weights(checkpoint, saved.tokenizer, options, unused, dtype, to / "model.safetensors");
  const bool is_misread = model.family == ModelFamily::kQwen2 && has_tokenizer(to) &&
                          !is_of_encoded(saved.tokenizer) && !is_split_as_qwen2(read_bpe_files(to));
  partial.complete();
  if (!is_misread) return "";
  return concat(
      "AutoTokenizer of transformers 5 splits the text of every qwen2 model as Qwen 2 does, ",
      "and not as this run's tokenizer: open it with PreTrainedTokenizerFast.from_pretrained('",
      folder.string(), "')");
}

}  // namespace ladder
