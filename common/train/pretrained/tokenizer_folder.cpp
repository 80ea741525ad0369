#include "common/train/pretrained/tokenizer_folder.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/data/bpe/bpe_tokenizer.hpp"
#include "common/data/bpe/byte_alphabet.hpp"
#include "common/data/encoded_file.hpp"
#include "common/data/tokenizer.hpp"
#include "common/data/tokenizer_source.hpp"
#include "common/train/checkpoint/disk.hpp"
#include "common/train/checkpoint/safetensors.hpp"
#include "common/train/pretrained/model_config.hpp"
#include "common/train/pretrained/pretrained_weights.hpp"

namespace ladder {

namespace fs = std::filesystem;

namespace {

constexpr const char* kConfig = "config.json";
constexpr const char* kGenerationConfig = "generation_config.json";
constexpr const char* kKeptSettings = "init_from";  // in the run's folder

// What transformers reads besides the model; the last says which tokens begin and end a text.
constexpr const char* kFiles[] = {
    "tokenizer.json",          "vocab.json",        "merges.txt",          "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "chat_template.jinja", kGenerationConfig};

constexpr std::uintmax_t kMostSettingsBytes = 1 << 20, kMostTokenizerBytes = 1 << 28;

nlohmann::json settings_in(const fs::path& path) {
  const auto settings = parse_sorted_json(read_text_file(path, kMostSettingsBytes), path);
  check(settings.is_object(), path.string(), ": is not an object of settings");
  return settings;
}

// The kept folder has no config.json, so its generation_config.json also says what that does.
void keep_generation_tokens(const fs::path& from, const fs::path& to) {
  const bool has_own = fs::exists(from / kGenerationConfig);
  if (!has_own && !fs::exists(from / kConfig)) return;
  auto settings = has_own ? settings_in(from / kGenerationConfig)
                          : nlohmann::json{{"_from_model_config", true}};
  const Json tokens = generation_tokens(from);
  for (const auto& [name, ids] : tokens.items())
    if (!ids.empty()) settings[name] = ids;
  write_text_file(to / kGenerationConfig, ladder::to_text(settings, 2) + "\n");
}

// Another kept copy than the run reads with would make its checkpoints worthless.
void check_is_kept(const fs::path& kept, const DataOptions& data, const std::string& way_out) {
  check(BpeTokenizer(kept).name() == open_tokenizer(data)->name(), kept.string(),
        ": holds another tokenizer than this run's, ", tokenizer_path(data).string(), way_out);
  generation_tokens(kept);
}

// Of a tokenizer that nobody here can read.
std::string name_of_files(const fs::path& folder) {
  std::map<std::string, std::string> contents;
  for (const fs::directory_entry& file : fs::directory_iterator(folder))
    contents[file.path().filename()] = read_text_file(file.path(), kMostTokenizerBytes);
  return name_of_encoded({contents.begin(), contents.end()});
}

void keep_encoded(const EncodedFile& encoded, const fs::path& kept) {
  const std::string name = encoded.open()->name();
  if (!fs::exists(kept)) {
    PartialFolder partial(kept);
    for (const auto& [file, bytes] : encoded.files())
      write_text_file(partial.path() / file, std::string(bytes));
    partial.complete();
  }
  check(name_of_files(kept) == name, kept.string(), ": holds another tokenizer than this run's, ",
        "with which its data were encoded: remove it, or choose another --out");
}

// Learned positions that the run has no parameters for, and its export should have.
void keep_unused_positions(const fs::path& folder, std::int64_t context, const fs::path& to) {
  const ModelOptions model =
      parse_model_config(read_text_file(folder / kConfig, kMostSettingsBytes), folder / kConfig)
          .model;
  const FamilyTraits& traits = traits_of(model.family);
  if (traits.has_rotary_positions() || context >= model.context) return;
  const at::Tensor all = at::empty({model.context, model.channels}, at::kFloat);
  HuggingFaceFolder(folder, model.family, /*has_tied_head=*/false)
      .read(traits.positions_name(), all);
  const at::Tensor unused = all.slice(/*dim=*/0, context);
  SafetensorsWriter writer(to, {{traits.positions_name(), at::kFloat, unused.sizes().vec()}});
  writer.write(unused);
  writer.finish();
}

fs::path run_of(const fs::path& checkpoint) {
  return plain_path(checkpoint).parent_path().parent_path();
}

}  // namespace

Json generation_tokens(const fs::path& folder) {
  Json tokens = {
      {"bos_token_id", nullptr}, {"eos_token_id", Json::array()}, {"pad_token_id", nullptr}};
  Json& ends = tokens["eos_token_id"];
  for (const char* file : {kGenerationConfig, kConfig}) {
    const fs::path path = folder / file;
    if (!fs::exists(path)) continue;
    const auto settings = settings_in(path);
    const Json found = settings.value("eos_token_id", nlohmann::json());
    for (const Json& end : found.is_array() ? found : Json::array({found})) {
      check(end.is_number_unsigned() || end.is_null(), path.string(), ": \"eos_token_id\" is ",
            excerpt(to_text(found)), ", neither a token id nor a list of them");
      if (!end.is_null() && std::ranges::find(ends, end) == ends.end()) ends.push_back(end);
    }
    for (const char* name : {"bos_token_id", "pad_token_id"}) {
      const Json id = settings.value(name, nlohmann::json());
      if (tokens[name].is_null() && id.is_number_unsigned()) tokens[name] = id;
    }
  }
  return tokens;
}

void keep_settings_of_start(const fs::path& init_from, const fs::path& run, std::int64_t context) {
  if (init_from.empty() || fs::exists(run / kKeptSettings)) return;
  const bool is_checkpoint = fs::exists(init_from / "state.json");
  const bool is_other_run = is_checkpoint || fs::exists(init_from / "checkpoints");
  const fs::path from = is_checkpoint  ? kept_settings(init_from)
                        : is_other_run ? init_from / kKeptSettings
                                       : init_from;
  if (!fs::exists(from / kConfig)) return;
  PartialFolder partial(run / kKeptSettings);
  for (const char* file : {kConfig, kGenerationConfig, kUnusedPositions})
    if (fs::exists(from / file)) copy_file_to_disk(from / file, partial.path() / file);
  generation_tokens(partial.path());
  if (from == init_from) keep_unused_positions(from, context, partial.path() / kUnusedPositions);
  partial.complete();
}

fs::path kept_settings(const fs::path& checkpoint) {
  return run_of(checkpoint) / kKeptSettings;
}

void copy_tokenizer_files(const fs::path& from, const fs::path& to) {
  for (const char* file : kFiles)
    if (fs::exists(from / file)) copy_file_to_disk(from / file, to / file);
}

void keep_tokenizer(const DataOptions& data, const fs::path& run) {
  if (const auto* encoded = dynamic_cast<const EncodedFile*>(data.tokenizer_files.get()))
    return keep_encoded(*encoded, run / "tokenizer");
  const fs::path from = tokenizer_path(data);
  if (from.empty()) return;
  const fs::path kept = run / "tokenizer";
  if (fs::exists(kept)) return check_is_kept(kept, data, ": remove it, or choose another --out");
  PartialFolder partial(kept);
  const bool is_folder = fs::is_directory(from);
  const fs::path folder = is_folder ? from : from.parent_path();
  copy_tokenizer_files(folder, partial.path());
  if (!is_folder) {  // whatever its name is
    fs::remove(partial.path() / "tokenizer.json");
    copy_file_to_disk(from, partial.path() / "tokenizer.json");
  }
  keep_generation_tokens(folder, partial.path());
  check_is_kept(partial.path(), data, ", whose files have changed meanwhile");
  partial.complete();
}

fs::path kept_tokenizer(const fs::path& checkpoint, const std::string& name) {
  const fs::path kept = run_of(checkpoint) / "tokenizer";
  check(fs::is_directory(kept), kept.string(), ": is missing. ", checkpoint.string(),
        " was trained with the tokenizer '", name, "', whose files its run keeps there");
  const std::string found = is_of_encoded(name) ? name_of_files(kept) : BpeTokenizer(kept).name();
  check(found == name, kept.string(), ": holds the tokenizer '", found, "', but ",
        checkpoint.string(), " was trained with '", name, "'");
  return kept;
}

namespace {

constexpr const char* kEndOfText = "<|endoftext|>";
constexpr const char* kPadding = "<|padding|>";

}  // namespace

Json added_token_json(const AddedToken& token) {
  return {{"id", token.id},
          {"content", token.content},
          {"single_word", false},
          {"lstrip", false},
          {"rstrip", false},
          {"normalized", token.is_normalized},
          {"special", token.is_special}};
}

Json byte_tokenizer_json() {
  const auto special = [](std::int64_t id, const char* content) {
    return added_token_json({static_cast<std::uint32_t>(id), content, /*is_special=*/true});
  };
  Json vocabulary = Json::object();
  for (int byte = 0; byte < ByteTokenizer::kEndOfText; ++byte)
    vocabulary[letter_of(static_cast<unsigned char>(byte))] = byte;
  vocabulary[kEndOfText] = ByteTokenizer::kEndOfText;
  vocabulary[kPadding] = ByteTokenizer::kPadding;
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", false}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens",
           {special(ByteTokenizer::kEndOfText, kEndOfText),
            special(ByteTokenizer::kPadding, kPadding)}},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}}};
}

Json byte_tokenizer_config_json(std::int64_t context) {
  return {{"tokenizer_class", "PreTrainedTokenizerFast"},
          {"bos_token", kEndOfText},
          {"eos_token", kEndOfText},
          {"pad_token", kPadding},
          {"add_bos_token", false},
          {"add_eos_token", false},
          {"add_prefix_space", false},
          {"clean_up_tokenization_spaces", false},
          {"model_input_names", {"input_ids", "attention_mask"}},
          {"model_max_length", context}};
}

}  // namespace ladder
