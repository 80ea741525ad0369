// The files of a byte-level BPE tokenizer, as Hugging Face's libraries write them.
//
//   tokenizer.json              everything, in the format of Python's `tokenizers`
//   vocab.json, merges.txt      GPT-2's older pair, which implies GPT-2's pre-tokenizer
//   tokenizer_config.json       names the end-of-text and padding tokens, and others; may add tokens
//   special_tokens_map.json     the same names, in older folders
//   added_tokens.json           adds tokens, in older folders
//
// A file may ask for more than is supported here. Such a file is refused, with the name of the
// setting, because its token ids would be others.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/data/bpe/split_text.hpp"

namespace ladder {

enum class Removed { kNothing, kMatches, kBetweenMatches };

// One stage of a pre-tokenizer: cuts each piece of text that it gets into smaller ones.
struct PreTokenizerStage {
  bool adds_prefix_space = false;       // to a piece that does not begin with one, before it is cut
  std::string pattern = {};             // see SplitPattern; empty: the piece stays whole
  Removed removed = Removed::kNothing;  // of what the pattern cuts: no token stands for it
};

struct BpeDescription {
  std::string file;                                           // for messages
  std::unordered_map<std::string, std::uint32_t> vocabulary;  // in letters (byte_alphabet.hpp)
  std::vector<std::pair<std::string, std::string>> merges;    // the first one is done first
  bool ignores_merges = false;  // for a whole piece that is in the vocabulary
  std::vector<AddedToken> added;
  bool is_nfc = false;  // the text is brought to this normal form before it is cut
  std::vector<PreTokenizerStage> stages;
  std::string begin_of_text;      // that the post-processor puts before a text; empty: none
  bool adds_end_of_text = false;  // as the post-processor does, behind a text
  std::string end_of_text;        // as written; like begin_of_text, it is found in text, too
  std::string padding;
  std::optional<std::uint32_t> bos, eos;  // ids of bos_token and eos_token, where these are named

  // The number of ids, those of added tokens included; they have no holes.
  std::int64_t vocab_size = 0;
};

// For the message that this path does not exist: how a model of the Hub becomes a folder.
std::string how_to_fetch(const std::filesystem::path& missing);

// Whether the folder has the files of a tokenizer.
bool has_tokenizer(const std::filesystem::path& folder);

// Reads a folder, or the tokenizer.json of one. Throws CheckError with the file and the reason if
// a file is missing, damaged, larger than 64 MiB, or asks for what is not supported; if two tokens
// have the same id, an id is missing, a merge is not of tokens, or two files contradict each other
// about a token; if a token is named that there is none of; and if there is no end-of-text
// token, which is the one that the post-processor adds, or else <|endoftext|>, or else the eos_token
// of tokenizer_config.json.
BpeDescription read_bpe_files(const std::filesystem::path& path);

}  // namespace ladder
