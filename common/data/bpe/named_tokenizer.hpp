// The tokenizer that --tokenizer names.
#pragma once

#include <memory>

#include "common/data/options.hpp"
#include "common/data/tokenizer.hpp"

namespace ladder {

// Reads the tokenizer's files; none if it is bytes. Data that bring a tokenizer (encoded_file.hpp) are
// those files, and --tokenizer is refused with them. With "auto", it is the pretrained model's, if
// that has one: in its folder, or in that of the run that trained it. A folder whose tokens are
// bytes, as ./ladder export writes it, then means bytes. Throws CheckError if a file is missing or
// damaged, or asks for what is not supported.
std::shared_ptr<const TokenizerFiles> read_tokenizer(const DataOptions& options);

// Whether anything says how text is read: --tokenizer, or the pretrained model's files.
bool is_tokenizer_named(const DataOptions& options);

}  // namespace ladder
