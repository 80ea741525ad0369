// The tokenizer that --tokenizer names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "common/data/options.hpp"
#include "common/data/tokenizer.hpp"

namespace ladder {

// The folder, or the tokenizer.json, of the tokenizer; empty if it is bytes. With "auto", the
// pretrained model's, if it has one.
std::filesystem::path tokenizer_path(const DataOptions& options);

// Throws CheckError if a file is missing or damaged, or asks for what is not supported.
std::unique_ptr<Tokenizer> open_tokenizer(const DataOptions& options);

// Whether the data are token ids of which nobody says what they stand for.
bool has_unknown_tokens(const DataOptions& options);

// Throws UsageError if --vocab-size is below the tokenizer's.
void check_vocab_size(const DataOptions& options, const Tokenizer& tokenizer);

// The number of token ids that a model of these data needs: --vocab-size, or else the tokenizer's.
// Throws UsageError if it is too small, or missing where nothing else tells.
std::int64_t vocab_size_of(const DataOptions& options);

}  // namespace ladder
