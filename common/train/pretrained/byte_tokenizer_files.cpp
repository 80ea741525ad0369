#include "common/train/pretrained/byte_tokenizer_files.hpp"

#include "common/data/bpe/byte_alphabet.hpp"
#include "common/data/tokenizer.hpp"

namespace ladder {
namespace {

constexpr const char* kEndOfText = "<|endoftext|>";
constexpr const char* kPadding = "<|padding|>";

Json special_token(std::int64_t id, const char* text) {
  return {{"id", id},        {"content", text},     {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

}  // namespace

Json byte_tokenizer_json() {
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
