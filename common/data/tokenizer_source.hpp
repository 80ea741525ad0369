// The tokenizer of a run's data, once its files have been read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "common/data/options.hpp"
#include "common/data/tokenizer.hpp"

namespace ladder {

// The folder, or the tokenizer.json, of the tokenizer; empty if it is bytes, unknown, or that of data
// which bring their own (encoded_file.hpp). Throws
// CheckError if --tokenizer names files, and nobody has read them (bpe/named_tokenizer.hpp).
std::filesystem::path tokenizer_path(const DataOptions& options);

// Throws as tokenizer_path().
std::unique_ptr<Tokenizer> open_tokenizer(const DataOptions& options);

// Whether the data are token ids of which nobody says what they stand for.
bool has_unknown_tokens(const DataOptions& options);

// The same, and nothing but a model says how many there are.
bool needs_models_vocabulary(const DataOptions& options);

// Throws UsageError if --vocab-size is below the tokenizer's.
void check_vocab_size(const DataOptions& options, const Tokenizer& tokenizer);

// The number of token ids that a model of these data needs: --vocab-size, or else the tokenizer's.
// Throws UsageError if it is too small, or missing where nothing else tells.
std::int64_t vocab_size_of(const DataOptions& options);

}  // namespace ladder
