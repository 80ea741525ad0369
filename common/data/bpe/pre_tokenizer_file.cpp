#include "common/data/bpe/pre_tokenizer_file.hpp"

#include "common/core/check.hpp"
#include "common/data/bpe/json_settings.hpp"

namespace ladder {
namespace {

using nlohmann::json;

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
  settings.only("behavior", {"Isolated"});
  settings.only("invert", {nullptr, false});
  return {.pattern = settings.object("pattern").text("Regex")};
}

}  // namespace

std::vector<PreTokenizerStage> read_pre_tokenizer(const json& file, const std::string& name) {
  const JsonSettings whole = JsonSettings(file, name, "").object("pre_tokenizer");
  const std::string type = whole.text("type");
  if (type == "ByteLevel") return {read_byte_level(whole)};
  check(type == "Sequence", whole.place(), ": the pre-tokenizer ", type,
        " is not supported; use ByteLevel, or a Sequence that ends with it");
  const json& list = whole.member("pretokenizers");
  check(list.is_array() && !list.empty(), whole.place(), ": \"pretokenizers\" is not a list");
  std::vector<PreTokenizerStage> stages;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonSettings settings(list[i], name, concat("pre_tokenizer[", i, "]"));
    if (i + 1 < list.size()) {
      stages.push_back(read_stage(settings));
    } else {
      settings.only("type", {"ByteLevel"});
      stages.push_back(read_byte_level(settings));
    }
  }
  return stages;
}

namespace {

// Whether a TemplateProcessing makes of a text just that text. transformers 5 writes such a one for
// tokenizers that add no token.
bool adds_nothing(const JsonSettings& settings) {
  const json& single = settings.member("single");
  return single.is_array() && single.size() == 1 && single[0].is_object() &&
         single[0].contains("Sequence");
}

}  // namespace

void check_post_processor(const json& file, const std::string& name) {
  const auto found = file.find("post_processor");
  if (found == file.end() || found->is_null()) return;
  const JsonSettings settings(*found, name, "post_processor");
  const std::string type = settings.text("type");
  if (type == "TemplateProcessing" && adds_nothing(settings)) return;
  check(type == "ByteLevel", settings.place(), ": the post-processor ", type,
        " is not supported: it may add tokens that training data do not have; only ByteLevel is, "
        "and a TemplateProcessing that adds none");
}

}  // namespace ladder
