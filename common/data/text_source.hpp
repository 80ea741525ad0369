// What text can be read from, as a table: the built-in corpus, and files by the ending of their
// name. text_sources.cpp has the table; code that trains on text need not know how it was read.
#pragma once

#include <span>
#include <string_view>

#include "common/data/options.hpp"
#include "common/data/row_tokens.hpp"

namespace ladder {

struct TextSource {
  std::string_view kind;  // "corpus", or the ending of a file's name
  Rows rows;              // that samples of it are
  // Reads options.source; of the corpus, the part to train on or the one to validate with. Throws
  // CheckError if a file is missing or damaged.
  TokenizedText (*read)(const DataOptions& options, bool is_training, Tokenizer& tokenizer);
};

std::span<const TextSource> text_sources();

}  // namespace ladder
