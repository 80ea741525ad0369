// The files of a run's tokenizer, kept with the run and exported with its model: whoever has the
// parameters has what their tokens mean.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "common/core/json.hpp"
#include "common/data/bpe/split_text.hpp"
#include "common/data/options.hpp"

namespace ladder {

// Copies them to RUN/tokenizer, if the data are not read as bytes, and if they are not there yet: all
// that the run reads of the tokenizer, and what transformers reads besides. Its
// generation_config.json also has the folder's generation_tokens(). Then reads the copy.
// Throws CheckError if that folder holds another tokenizer, or a file of it is damaged.
void keep_tokenizer(const DataOptions& data, const std::filesystem::path& run);

// RUN/tokenizer of the run that this checkpoint belongs to. Throws CheckError if it does not hold
// the tokenizer with this name, as Tokenizer::name() says it.
std::filesystem::path kept_tokenizer(const std::filesystem::path& checkpoint,
                                     const std::string& name);

// Copies what the run's start says of its model to RUN/init_from, if that is not there yet: the
// config.json and generation_config.json of a Hugging Face folder, with the learned positions
// beyond the run's context, or what a run of ours has kept of such. They tell an export what no
// checkpoint holds.
void keep_settings_of_start(const std::filesystem::path& init_from,
                            const std::filesystem::path& run, std::int64_t context);

// In kept_settings(): the positions beyond the context, in fp32 by our name; missing if there are
// none.
inline constexpr const char* kUnusedPositions = "unused_positions.safetensors";

// The folder that keep_settings_of_start() has made for the run that this checkpoint belongs to. It
// need not exist.
std::filesystem::path kept_settings(const std::filesystem::path& checkpoint);

// The ids that begin, end and pad a text, by transformers' names for them. A text ends with all that
// a Hugging Face folder's generation_config.json and config.json name: `eos_token_id` is a list,
// each id once. The other two are those of the first file that names one, or else null. Throws
// CheckError if a file is damaged.
Json generation_tokens(const std::filesystem::path& folder);

// Copies the files that a tokenizer consists of in a Hugging Face folder, of those that are there.
void copy_tokenizer_files(const std::filesystem::path& from, const std::filesystem::path& to);

// A token as tokenizer.json lists it among its added_tokens.
Json added_token_json(const AddedToken& token);

// ByteTokenizer's files as transformers reads it: a byte-level BPE without a merge, whose ids are
// ours. tokenizer.json: byte b is token b; then come the end of a text, and padding.
Json byte_tokenizer_json();

// tokenizer_config.json, of a model that reads so many tokens.
Json byte_tokenizer_config_json(std::int64_t context);

}  // namespace ladder
