#include "common/model/config_reader.hpp"

#include <algorithm>
#include <limits>
#include <string_view>

#include "common/core/check.hpp"

namespace ladder {
namespace {

constexpr std::int64_t kMostExtent = std::numeric_limits<std::int32_t>::max();
constexpr double kMostPositive = 1e30;  // as of an option

// Settings of all classes of transformers, and what trainers add to them: where a model comes from,
// what its tokens mean, how it is run, stored and saved, how it writes a text, how it was trained.
constexpr std::string_view kHarmless =
    " attn_implementation begin_suppress_tokens chunk_size_feed_forward dtype finetuning_task "
    "gradient_checkpointing id2label initializer_range is_decoder label2id max_sequence_length "
    "model_max_length model_type name_or_path num_labels output_attentions "
    "output_hidden_states output_past output_scores prefix problem_type remove_invalid_values "
    "return_dict return_dict_in_generate suppress_tokens task_specific_params "
    "tie_encoder_decoder tokenizer_class torch_dtype torchscript transformers.js_config "
    "transformers_version unsloth_fixed unsloth_version use_bfloat16 use_cache "
    "bad_words_ids diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size "
    "exponential_decay_length_penalty length_penalty max_length max_new_tokens min_length "
    "no_repeat_ngram_size num_beam_groups num_beams num_return_sequences repetition_penalty "
    "temperature top_k top_p typical_p ";

bool is_nothing(const SortedJson& value) {
  return value.is_null() || value == false || value == "" ||
         (value.is_structured() && value.empty());
}

// Names that begin with an underscore are transformers' own notes.
bool is_harmless(const std::string& name, const SortedJson& value) {
  return name.starts_with('_') || name.ends_with("_token_id") || is_nothing(value) ||
         (name.find(' ') == std::string::npos &&
          kHarmless.find(concat(' ', name, ' ')) != std::string_view::npos);
}

SortedJson object_in(const std::string& text, const std::string& path) {
  SortedJson settings = parse_sorted_json(text, path);
  check(settings.is_object(), path, ": is not an object of settings");
  return settings;
}

}  // namespace

ConfigReader::ConfigReader(const std::string& text, const std::string& path)
    : path_(path), settings_(object_in(text, path)), reader_(settings_, path, "") {}

const SortedJson* ConfigReader::find(const char* name) {
  known_.insert(name);
  const auto found = settings_.find(name);
  return found == settings_.end() || found->is_null() ? nullptr : &*found;
}

bool ConfigReader::has(const char* name) {
  return find(name) != nullptr;
}

std::int64_t ConfigReader::extent(const char* name, std::int64_t if_missing) {
  known_.insert(name);
  return settings_.contains(name) ? extent_in(settings_, name) : if_missing;
}

std::int64_t ConfigReader::extent(const char* name, std::int64_t if_missing, std::int64_t if_null) {
  const bool is_null = settings_.contains(name) && settings_[name].is_null();
  return is_null ? (known_.insert(name), if_null) : extent(name, if_missing);
}

double ConfigReader::positive(const char* name, double otherwise) {
  return has(name) ? positive_in(settings_, name) : otherwise;
}

bool ConfigReader::flag(const char* name, bool otherwise) {
  known_.insert(name);
  return reader_.flag(name, otherwise);
}

std::string ConfigReader::text(const char* name) {
  known_.insert(name);
  return reader_.text(name);
}

void ConfigReader::only(const char* name, std::initializer_list<SortedJson> values,
                        const char* advice) {
  const SortedJson* const value = find(name);
  if (value == nullptr || std::ranges::find(values, *value) != values.end()) return;
  std::string list;
  for (const SortedJson& one : values)
    list += (list.empty() ? "" : " or ") + (one.is_null() ? "models without it" : one.dump());
  throw CheckError(concat(path_, ": \"", name, "\" is ", excerpt(to_text(*value)),
                          "; Ladder computes only ", list, ": ", advice));
}

void ConfigReader::only_all(const char* name, const char* begin) {
  const SortedJson* const found = find(name);
  if (found == nullptr) return;
  const auto is_one = [&](const SortedJson& text) {
    return text.is_string() && text.get<std::string>().starts_with(begin);
  };
  check(
      found->is_array() && std::ranges::all_of(*found, is_one), path_, ": \"", name, "\" is ",
      [&] { return excerpt(to_text(*found)); }, "; Ladder computes only \"", begin,
      "\" and what begins so: ", kAdvice);
}

std::optional<std::int64_t> ConfigReader::interval_of_zeros(const char* name, std::int64_t count) {
  const SortedJson* const found = find(name);
  if (found == nullptr) return {};
  std::int64_t interval = 0, i = 0;
  const auto is_regular = [&](const SortedJson& value) {
    if (++i > count) return true;
    if (interval == 0 && value == 0) interval = i;
    return value == (interval != 0 && i % interval == 0 ? 0 : 1);
  };
  check(
      found->is_array() && std::ssize(*found) >= count && std::ranges::all_of(*found, is_regular),
      path_, ": \"", name, "\" is ", [&] { return excerpt(to_text(*found)); },
      "; Ladder computes only a list of 1, and of 0 at every Nth of ", count, " layers: ", kAdvice);
  return interval;
}

bool ConfigReader::is_one_not_zero(std::initializer_list<const char*> names) {
  bool is_one = false;
  for (const char* name : names) {
    const SortedJson* const value = find(name);
    is_one = is_one || (value != nullptr && *value != 0);
  }
  return is_one;
}

ConfigReader::Rope ConfigReader::rope(std::int64_t context, double theta) {
  only("partial_rotary_factor", {1});
  theta = positive("rope_theta", theta);
  RopeScaling scaling;
  const char* before = nullptr;
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    const SortedJson* const found = find(name);
    if (found == nullptr) continue;
    const SortedJson& rope = *found;
    const JsonSettings settings = reader_.object(name);
    std::string type = "default";
    for (const char* key : {"type", "rope_type"})
      if (rope.contains(key) && !rope[key].is_null()) type = settings.text(key);
    check(
        !rope.contains("partial_rotary_factor") || rope["partial_rotary_factor"] == 1 ||
            rope["partial_rotary_factor"].is_null(),
        path_, ": \"", name, "\" has \"partial_rotary_factor\" ",
        [&] { return excerpt(to_text(rope["partial_rotary_factor"])); },
        "; Ladder computes only 1: ", kAdvice);
    const RopeScaling own = scaling_in(rope, type, name, context);
    check(before == nullptr || own == scaling, path_, ": \"", before == nullptr ? "" : before,
          "\" and \"", name, "\" say different things: delete the one that is wrong");
    scaling = own;
    before = name;
    if (!rope.contains("rope_theta") || rope["rope_theta"].is_null()) continue;
    const double nested = positive_in(rope, "rope_theta");
    check(!has("rope_theta") || nested == theta, path_, ": \"rope_theta\" is ", theta, ", but ",
          nested, " in \"", name, "\": delete the one that is wrong");
    theta = nested;
  }
  return {theta, scaling};
}

RopeScaling ConfigReader::scaling_in(const SortedJson& rope, const std::string& type,
                                     const char* where, std::int64_t context) const {
  constexpr std::string_view kKnown[] = {
      "type",   "rope_type",       "rope_theta",       "partial_rotary_factor",
      "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"};
  check(type == "default" || type == "linear" || type == "llama3", path_, ": \"", where,
        "\" has the type \"", excerpt(type),
        "\"; Ladder computes only default, linear and llama3: if the weights were trained without "
        "it, delete it and train with texts no longer than they know");
  for (const auto& [name, value] : rope.items())
    check(std::ranges::find(kKnown, name) != std::end(kKnown) || is_nothing(value), path_, ": \"",
          where, "\" has \"", excerpt(name), "\", which Ladder does not know: if the weights were ",
          "trained without it, delete it");
  if (type == "default") return {};
  const auto number = [&](const char* name) {
    check(rope.contains(name), path_, ": \"", name, "\" is missing in \"", where, "\"");
    return positive_in(rope, name);
  };
  if (type == "linear") return {.kind = RopeScaling::Kind::kLinear, .factor = number("factor")};
  constexpr const char* kOriginal = "original_max_position_embeddings";
  const RopeScaling scaling = {
      .kind = RopeScaling::Kind::kLlama3,
      .factor = number("factor"),
      .low_turns = number("low_freq_factor"),
      .high_turns = number("high_freq_factor"),
      .original_context = rope.contains(kOriginal) ? extent_in(rope, kOriginal) : context};
  check(scaling.high_turns > scaling.low_turns, path_, ": \"high_freq_factor\" is ",
        scaling.high_turns, ", it must be above \"low_freq_factor\", which is ", scaling.low_turns);
  return scaling;
}

void ConfigReader::ignore(std::initializer_list<const char*> names) {
  known_.insert(names.begin(), names.end());
}

void ConfigReader::refuse_unknown(const char* family) const {
  for (const auto& [name, value] : settings_.items())
    check(known_.contains(name) || is_harmless(name, value), path_, ": \"", excerpt(name), "\" is ",
          excerpt(to_text(value)), ", which Ladder does not know of ", family,
          ": if the weights were trained without it, delete it from a copy of the folder");
}

std::int64_t ConfigReader::extent_in(const SortedJson& object, const char* name) const {
  const SortedJson& stored = object.at(name);
  check(!stored.is_null(), path_, ": \"", name, "\" is null, it must be from 1 to ", kMostExtent);
  const std::int64_t value = count_in(object, name, path_);
  check(value >= 1 && value <= kMostExtent, path_, ": \"", name, "\" is ", value,
        ", it must be from 1 to ", kMostExtent);
  return value;
}

double ConfigReader::positive_in(const SortedJson& object, const char* name) const {
  const SortedJson& value = object.at(name);
  const bool is_in_range = value.is_number() && value > 0 && value <= kMostPositive;
  check(is_in_range, path_, ": \"", name, "\" is ", excerpt(to_text(value)),
        ", it must be a number above 0 and at most ", kMostPositive);
  return value.get<double>();
}

}  // namespace ladder
