// The tokenizer that --tokenizer names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "common/data/options.hpp"
#include "common/data/tokenizer.hpp"

namespace ladder {

// Reads the tokenizer's files; none if it is bytes. With "auto", it is the pretrained model's, if
// that has one: in its folder, or in that of the run that trained it. A folder whose tokens are
// bytes, as ./ladder export writes it, then means bytes. Throws CheckError if a file is missing or
// damaged, or asks for what is not supported.
std::shared_ptr<const BpeDescription> read_tokenizer(const DataOptions& options);

// Whether anything says how text is read: --tokenizer, or the pretrained model's files.
bool is_tokenizer_named(const DataOptions& options);

// The folder, or the tokenizer.json, of the tokenizer; empty if it is bytes, or unknown.
std::filesystem::path tokenizer_path(const DataOptions& options);

// Throws as read_tokenizer(), unless options.bpe has what that returned.
std::unique_ptr<Tokenizer> open_tokenizer(const DataOptions& options);

// Whether the data are token ids of which nobody says what they stand for.
bool has_unknown_tokens(const DataOptions& options);

// Throws UsageError if --vocab-size is below the tokenizer's.
void check_vocab_size(const DataOptions& options, const Tokenizer& tokenizer);

// The number of token ids that a model of these data needs: --vocab-size, or else the tokenizer's.
// Throws UsageError if it is too small, or missing where nothing else tells.
std::int64_t vocab_size_of(const DataOptions& options);

}  // namespace ladder
