#include "common/data/bpe/bpe_files.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/data/mapped_file.hpp"

namespace ladder {

namespace fs = std::filesystem;

using nlohmann::json;

namespace {

constexpr std::size_t kMostFileBytes = std::size_t{64} << 20;
constexpr const char* kConfig = "tokenizer_config.json";
constexpr const char* kEndOfTextToken = "<|endoftext|>";

// Calls read(bytes of the file).
template <class Read>
auto with_file(const fs::path& path, const Read& read) {
  const MappedFile file(path.string());
  check(file.bytes().size() <= kMostFileBytes, path.string(), ": has ", file.bytes().size(),
        " bytes; the file of a tokenizer has at most ", kMostFileBytes);
  return read(file.bytes());
}

json read_object(const fs::path& path) {
  const std::string place = path.string();
  json object =
      with_file(path, [&](std::string_view bytes) { return parse_sorted_json(bytes, place); });
  check(object.is_object(), place, ": is not a JSON object");
  return object;
}

std::uint32_t read_id(const json& value, const std::string& file, const std::string& token) {
  constexpr std::uint64_t kMostId = (std::uint64_t{1} << 31) - 1;
  check(value.is_number_unsigned() && value.get<std::uint64_t>() <= kMostId, file, ": token \"",
        token, "\" has the id ", value.dump(), ", it must be a whole number from 0 to ", kMostId);
  return value.get<std::uint32_t>();
}

void read_vocabulary(const json& object, BpeDescription& description) {
  check(object.is_object(), description.file,
        ": the vocabulary is not an object of tokens and ids");
  for (const auto& [token, id] : object.items())
    description.vocabulary.emplace(token, read_id(id, description.file, token));
}

std::pair<std::string, std::string> read_merge(const std::string& text, const std::string& place) {
  const std::size_t space = text.find(' ');
  check(space != std::string::npos && text.find(' ', space + 1) == std::string::npos, place,
        ": the merge \"", text, "\" is not two tokens with a space between them");
  return {text.substr(0, space), text.substr(space + 1)};
}

void read_merges(const json& list, BpeDescription& description) {
  check(list.is_array(), description.file, ": \"merges\" is not a list");
  for (const json& merge : list) {
    const bool is_pair =
        merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
    check(
        is_pair || merge.is_string(), description.file, ": the merge ",
        [&] { return merge.dump(); }, " is neither \"a b\" nor [\"a\", \"b\"]");
    description.merges.push_back(
        is_pair ? std::pair(merge[0].get<std::string>(), merge[1].get<std::string>())
                : read_merge(merge.get<std::string>(), description.file));
  }
}

void read_model(const json& file, BpeDescription& description) {
  const JsonSettings model = JsonSettings(file, description.file, "").object("model");
  model.only("type", {"BPE"});
  for (const char* name : {"byte_fallback", "fuse_unk"}) model.only(name, {nullptr, false});
  for (const char* name : {"unk_token", "continuing_subword_prefix", "end_of_word_suffix"})
    model.only(name, {nullptr, ""});
  model.only("dropout", {nullptr, 0.0});
  description.ignores_merges = model.flag("ignore_merges", false);
  read_vocabulary(model.member("vocab"), description);
  read_merges(model.member("merges"), description);
}

// Reads all of an added token but its id.
AddedToken read_token(const JsonSettings& token) {
  AddedToken added{.content = token.text("content")};
  for (const char* name : {"single_word", "lstrip", "rstrip"}) token.only(name, {nullptr, false});
  added.is_special = token.flag("special", false);
  added.is_normalized = token.flag("normalized", !added.is_special);
  return added;
}

void read_added(const json& file, BpeDescription& description) {
  const json list = file.value("added_tokens", json::array());
  check(list.is_array(), description.file, ": \"added_tokens\" is not a list");
  for (const json& entry : list) {
    check(
        entry.is_object(), description.file, ": an added token is ", [&] { return entry.dump(); },
        ", not an object");
    const JsonSettings settings(entry, description.file, "added token");
    AddedToken token = read_token(settings);
    token.id = read_id(settings.member("id"), description.file, token.content);
    check(!token.content.empty(), description.file, ": the added token ", token.id, " is empty");
    description.added.push_back(token);
  }
}

// The tokens that are found in text, from all files of a folder.
class AddedTokens {
 public:
  explicit AddedTokens(BpeDescription& description) : description_(description) {
    for (std::size_t i = 0; i < all().size(); ++i) places_.emplace(all()[i].content, i);
  }

  const AddedToken* find(const std::string& content) const {
    const auto found = places_.find(content);
    return found == places_.end() ? nullptr : &description_.added[found->second];
  }
  // An added one, or one of the vocabulary.
  std::optional<std::uint32_t> id_of(const std::string& content) const {
    if (const AddedToken* token = find(content)) return token->id;
    const auto found = description_.vocabulary.find(content);
    return found == description_.vocabulary.end() ? std::nullopt : std::optional(found->second);
  }
  // Adds a token of `file`; if the tokenizer has it already, what `file` says of it counts.
  void add(const AddedToken& token, const std::string& file) {
    check(!token.content.empty(), file, ": the added token ", token.id, " is empty");
    const std::optional<std::uint32_t> known = id_of(token.content);
    check(known.value_or(token.id) == token.id, file, ": \"", token.content, "\" is added token ",
          token.id, ", but in ", description_.file, " it is token ", known.value_or(0));
    const auto [place, is_new] = places_.emplace(token.content, all().size());
    if (is_new) all().emplace_back();
    all()[place->second] = token;
  }

 private:
  std::vector<AddedToken>& all() { return description_.added; }

  BpeDescription& description_;
  std::unordered_map<std::string, std::size_t> places_;
};

std::uint32_t read_key(const std::string& key, const std::string& file, const std::string& token) {
  std::uint32_t id = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
  const bool is_number = error == std::errc() && end == key.data() + key.size();
  return read_id(is_number ? json(id) : json(key), file, token);
}

// Reads what transformers adds to tokenizer.json: tokens of `config`, or else of added_tokens.json.
void read_added_beside(const fs::path& folder, const json& config, AddedTokens& added) {
  const std::string path = folder / kConfig;
  if (const auto decoder = config.find("added_tokens_decoder"); decoder != config.end()) {
    check(decoder->is_object(), path, ": \"added_tokens_decoder\" is not an object");
    for (const auto& [key, entry] : decoder->items()) {
      AddedToken token = read_token({entry, path, "added_tokens_decoder." + key});
      token.id = read_key(key, path, token.content);
      added.add(token, path);
    }
  } else if (const fs::path file = folder / "added_tokens.json"; fs::exists(file)) {
    const json ids = read_object(file);
    for (const auto& [content, id] : ids.items()) {
      const AddedToken* same = added.find(content);
      AddedToken token =
          same != nullptr ? *same : AddedToken{.content = content, .is_normalized = true};
      token.id = read_id(id, file, content);
      added.add(token, file);
    }
  }
}

// Supported: NFC, and a Sequence of it or of nothing. Throws CheckError naming anything else.
void read_normalizer(const JsonSettings& settings, BpeDescription& description) {
  const std::string type = settings.text("type");
  if (type == "Sequence") {
    for (const JsonSettings& part : settings.objects("normalizers"))
      read_normalizer(part, description);
    return;
  }
  check(type == "NFC", settings.place(), ": the normalizer ", type,
        " is not supported; NFC is, or none");
  description.is_nfc = true;
}

// How GPT-2 cuts text: contractions, and runs of letters, of digits or of other characters, each
// with the space before it; then the rest of a run of white space.
constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

PreTokenizerStage read_byte_level(const JsonSettings& settings) {
  return {.adds_prefix_space = settings.flag("add_prefix_space", true),
          .pattern = settings.flag("use_regex", true) ? kGpt2Pattern : ""};
}

PreTokenizerStage read_stage(const JsonSettings& settings) {
  const std::string type = settings.text("type");
  if (type == "Digits")
    return {.pattern = settings.flag("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)"};
  check(type == "Split", settings.place(), ": the pre-tokenizer ", type,
        " is not supported here; Digits and Split may come before a last ByteLevel");
  settings.only("behavior", {"Isolated", "Removed"});
  const bool is_inverted = settings.flag("invert", false);
  PreTokenizerStage stage = {.pattern = settings.object("pattern").text("Regex")};
  if (settings.text("behavior") == "Removed")
    stage.removed = is_inverted ? Removed::kBetweenMatches : Removed::kMatches;
  return stage;
}

// Supported: ByteLevel, or a Sequence of Digits and Split (a Regex, Isolated or Removed) that ends
// with ByteLevel. Throws CheckError naming anything else.
std::vector<PreTokenizerStage> read_pre_tokenizer(const json& file, const std::string& name) {
  const JsonSettings whole = JsonSettings(file, name, "").object("pre_tokenizer");
  const std::string type = whole.text("type");
  if (type == "ByteLevel") return {read_byte_level(whole)};
  check(type == "Sequence", whole.place(), ": the pre-tokenizer ", type,
        " is not supported; use ByteLevel, or a Sequence that ends with it");
  const std::vector<JsonSettings> parts = whole.objects("pretokenizers");
  check(!parts.empty(), whole.place(), ": \"pretokenizers\" is empty");
  std::vector<PreTokenizerStage> stages;
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) stages.push_back(read_stage(parts[i]));
  parts.back().only("type", {"ByteLevel"});
  stages.push_back(read_byte_level(parts.back()));
  return stages;
}

// Reads which token a TemplateProcessing puts before a text, and which one behind it.
void read_template(const JsonSettings& settings, BpeDescription& description) {
  std::string* place = &description.begin_of_text;
  for (const JsonSettings& piece : settings.objects("single")) {
    if (piece.has("Sequence")) {
      check(place == &description.begin_of_text, settings.place(),
            ": \"single\" has the text twice");
      piece.object("Sequence").only("id", {"A"});
      place = &description.end_of_text;
      continue;
    }
    const std::string token = piece.object("SpecialToken").text("id");
    check(place->empty(), settings.place(), ": adds both \"", *place, "\" and \"", token,
          "\" on one side of a text; only one token is supported");
    *place = token;
    const std::optional<std::uint32_t> id = AddedTokens(description).id_of(token);
    check(id.has_value(), settings.place(), ": adds \"", token,
          "\", which is not a token of the tokenizer");
    settings.object("special_tokens").object(token.c_str()).only("ids", {json::array({*id})});
  }
  check(place == &description.end_of_text, settings.place(), ": \"single\" lacks the text");
}

// Supported: none; ByteLevel, which only shifts offsets; a TemplateProcessing that adds at most one
// token on each side of a text; and a Sequence of these. Throws CheckError naming anything else.
void read_post_processor(const JsonSettings& settings, BpeDescription& description) {
  const std::string type = settings.text("type");
  if (type == "TemplateProcessing") return read_template(settings, description);
  if (type == "Sequence") {
    for (const JsonSettings& part : settings.objects("processors"))
      read_post_processor(part, description);
    return;
  }
  check(type == "ByteLevel", settings.place(), ": the post-processor ", type,
        " is not supported; ByteLevel and TemplateProcessing are, and a Sequence of these");
}

BpeDescription read_tokenizer_json(const fs::path& path) {
  BpeDescription description{.file = path.string()};
  const json file = read_object(path);
  const JsonSettings settings(file, description.file, "");
  for (const char* name : {"truncation", "padding"}) settings.only(name, {nullptr});
  read_model(file, description);
  read_added(file, description);
  if (settings.has("normalizer")) read_normalizer(settings.object("normalizer"), description);
  description.stages = read_pre_tokenizer(file, description.file);
  if (settings.has("post_processor"))
    read_post_processor(settings.object("post_processor"), description);
  check(settings.object("decoder").text("type") == "ByteLevel", description.file,
        ": the decoder is not of type ByteLevel");
  return description;
}

BpeDescription read_vocab_and_merges(const fs::path& folder) {
  BpeDescription description{.file = (folder / "vocab.json").string()};
  read_vocabulary(read_object(folder / "vocab.json"), description);
  const fs::path merges = folder / "merges.txt";
  with_file(merges, [&](std::string_view rest) {
    for (std::int64_t number = 1; !rest.empty(); ++number) {
      const std::size_t length = std::min(rest.find('\n'), rest.size());
      std::string line(rest.substr(0, length));
      rest.remove_prefix(std::min(length + 1, rest.size()));
      if (line.ends_with('\r')) line.pop_back();
      if (line.starts_with("#version")) continue;
      description.merges.push_back(read_merge(line, concat(merges.string(), ":", number)));
    }
  });
  description.stages = {{.pattern = kGpt2Pattern}};
  if (const auto end = description.vocabulary.find(kEndOfTextToken);
      end != description.vocabulary.end())
    description.added = {{.id = end->second, .content = end->first, .is_special = true}};
  return description;
}

// Ids are 0, 1, 2, … without holes, and no two tokens have the same one.
void count_tokens(BpeDescription& description) {
  std::unordered_map<std::uint32_t, std::string> tokens;
  std::ranges::sort(description.added, {}, &AddedToken::id);
  const auto add = [&](std::uint32_t id, const std::string& token) {
    const auto [place, is_new] = tokens.emplace(id, token);
    check(is_new, description.file, ": the tokens \"", place->second, "\" and \"", token,
          "\" have the same id ", id);
  };
  for (const auto& [token, id] : description.vocabulary) add(id, token);
  for (const AddedToken& added : description.added) {
    const auto found = description.vocabulary.find(added.content);
    if (found == description.vocabulary.end()) {
      add(added.id, added.content);
    } else {
      check(found->second == added.id, description.file, ": \"", added.content, "\" is token ",
            found->second, " of the vocabulary and added token ", added.id);
    }
  }
  for (std::size_t i = 1; i < description.added.size(); ++i)
    check(description.added[i - 1].id != description.added[i].id, description.file,
          ": the added token ", description.added[i].id, " appears twice");
  check(!tokens.empty(), description.file, ": the vocabulary is empty");
  description.vocab_size = static_cast<std::int64_t>(tokens.size());
  for (std::uint32_t id = 0; id < tokens.size(); ++id)
    check(tokens.contains(id), description.file, ": has ", tokens.size(),
          " tokens, but none with the id ", id, "; ids must have no holes");
}

// Reads tokenizer_config.json; without added_tokens_decoder, special_tokens_map.json counts more.
json read_config(const fs::path& folder) {
  json config = fs::exists(folder / kConfig) ? read_object(folder / kConfig) : json::object();
  const fs::path map = folder / "special_tokens_map.json";
  if (!config.contains("added_tokens_decoder") && fs::exists(map)) config.update(read_object(map));
  JsonSettings(config, folder / kConfig, "").only("split_special_tokens", {nullptr, false});
  return config;
}

// A token that is named: a string, or an object with its content.
std::optional<std::string> token_in(const json& value) {
  const json& token = value.is_object() && value.contains("content") ? value.at("content") : value;
  return token.is_string() ? std::optional(token.get<std::string>()) : std::nullopt;
}

std::optional<std::string> token_in(const json& config, const char* name, const fs::path& path) {
  const auto found = config.find(name);
  if (found == config.end() || found->is_null()) return std::nullopt;
  const std::optional<std::string> token = token_in(*found);
  check(
      token.has_value(), path.string(), ": \"", name, "\" is ", [&] { return found->dump(); },
      ", not a token");
  return token;
}

// All tokens that are named, by settings such as "bos_token" and by lists, are found in text, as
// transformers does it.
void read_named(const json& config, const std::string& path, AddedTokens& added) {
  const auto read = [&](const json& value) {
    const std::optional<std::string> token = token_in(value);
    if (!token || token->empty()) return;
    if (value.is_object()) read_token({value, path, *token});  // refuses what is not supported
    const std::optional<std::uint32_t> id = added.id_of(*token);
    check(id.has_value(), path, ": names \"", *token, "\", which is not a token of the tokenizer: ",
          "transformers would give it an id that the model does not know");
    if (added.find(*token) == nullptr)
      added.add({.id = *id, .content = *token, .is_special = true}, path);
  };
  for (const auto& [name, value] : config.items()) {
    if (name.ends_with("_token")) read(value);
    const bool is_list = name == "additional_special_tokens" || name == "extra_special_tokens";
    if (is_list && value.is_structured())
      for (const auto& [key, token] : value.items()) read(token);
  }
}

void read_end_and_padding(const json& config, const fs::path& path, AddedTokens& added,
                          BpeDescription& description) {
  std::string& end = description.end_of_text;
  description.adds_end_of_text = !end.empty();
  if (end.empty())
    end = added.id_of(kEndOfTextToken) ? kEndOfTextToken
                                       : token_in(config, "eos_token", path).value_or("");
  check(!end.empty(), description.file, ": has no token <|endoftext|>, and no eos_token in ",
        path.string(), "; Ladder puts one after every document");
  // Whoever reads an export is told these tokens by their names, and then finds them in text.
  for (const std::string& named : {end, description.begin_of_text})
    if (!named.empty() && added.find(named) == nullptr)
      added.add({.id = *added.id_of(named), .content = named, .is_special = true},
                description.file);
  description.padding = token_in(config, "pad_token", path).value_or(end);
  const auto id_of = [&](const char* name) {
    const std::optional<std::string> token = token_in(config, name, path);
    return token ? added.id_of(*token) : std::nullopt;
  };
  description.bos = description.begin_of_text.empty() ? id_of("bos_token")
                                                      : added.id_of(description.begin_of_text);
  description.eos = id_of("eos_token");
}

// A folder with vocab.json and merges.txt says in tokenizer_config.json which pre-tokenizer it
// means.
void check_is_gpt2(const fs::path& path, const json& config) {
  const JsonSettings settings(config, path.string(), "");
  settings.only("tokenizer_class", {nullptr, "GPT2Tokenizer", "GPT2TokenizerFast"});
  for (const char* name : {"add_prefix_space", "add_bos_token", "add_eos_token"})
    settings.only(name, {nullptr, false});
}

}  // namespace

std::string how_to_fetch(const fs::path& missing) {
  const bool is_plain = std::ranges::all_of(missing.string(), [](unsigned char c) {
    return std::isalnum(c) || std::strchr("-._/", c) != nullptr;
  });
  const bool is_name = is_plain && std::ranges::distance(missing) == 2 && missing.is_relative() &&
                       !fs::exists(missing.parent_path());
  return concat("Ladder downloads nothing. A model of the Hub is fetched by: hf download ",
                is_name ? missing.string() : "OWNER/NAME",
                " --local-dir FOLDER (pip install huggingface_hub)");
}

bool has_tokenizer(const fs::path& folder) {
  return fs::exists(folder / "tokenizer.json") || fs::exists(folder / "vocab.json");
}

BpeDescription read_bpe_files(const fs::path& path) {
  check(fs::exists(path), path.string(), ": no such file or folder; ", how_to_fetch(path));
  const bool is_folder = fs::is_directory(path);
  check(!is_folder || has_tokenizer(path), path.string(),
        ": has neither tokenizer.json nor vocab.json and merges.txt");
  const fs::path folder = is_folder ? path : path.parent_path();
  const json config = read_config(folder);
  const bool is_pair = is_folder && !fs::exists(folder / "tokenizer.json");
  if (is_pair) check_is_gpt2(folder / kConfig, config);
  BpeDescription description =
      is_pair ? read_vocab_and_merges(folder)
              : read_tokenizer_json(is_folder ? folder / "tokenizer.json" : path);
  AddedTokens added(description);
  read_added_beside(folder, config, added);
  read_named(config, folder / kConfig, added);
  read_end_and_padding(config, folder / kConfig, added, description);
  count_tokens(description);
  return description;
}

}  // namespace ladder
