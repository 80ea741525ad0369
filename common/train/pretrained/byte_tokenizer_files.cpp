#include "common/train/pretrained/byte_tokenizer_files.hpp"

#include <string>

#include "common/data/tokenizer.hpp"

namespace ladder {
namespace {

constexpr const char* kEndOfText = "<|endoftext|>";
constexpr const char* kPadding = "<|padding|>";

// The letters that stand for bytes in a byte-level BPE (Radford et al. 2019): bytes that print
// stand for themselves, and the others for U+0100, U+0101, …
std::string letter_of(int byte) {
  const auto prints = [](int b) { return (b > 32 && b < 127) || (b > 160 && b != 173); };
  int code_point = byte;
  if (!prints(byte)) {
    code_point = 256;
    for (int before = 0; before < byte; ++before) code_point += prints(before) ? 0 : 1;
  }
  if (code_point < 128) return {static_cast<char>(code_point)};
  return {static_cast<char>(0xC0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 63))};
}

Json special_token(std::int64_t id, const char* text) {
  return {{"id", id},        {"content", text},     {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

}  // namespace

Json byte_tokenizer_json() {
  Json vocabulary = Json::object();
  for (int byte = 0; byte < ByteTokenizer::kEndOfText; ++byte) vocabulary[letter_of(byte)] = byte;
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
           {special_token(ByteTokenizer::kEndOfText, kEndOfText),
            special_token(ByteTokenizer::kPadding, kPadding)}},
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
          {"clean_up_tokenization_spaces", false},
          {"model_max_length", context}};
}

}  // namespace ladder
