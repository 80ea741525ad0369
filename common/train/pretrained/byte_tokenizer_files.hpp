// ByteTokenizer as transformers reads it: a byte-level BPE without a merge, whose ids are ours.
#pragma once

#include <cstdint>

#include "common/core/json.hpp"

namespace ladder {

// tokenizer.json: byte b is token b; then come the end of a text, and padding.
Json byte_tokenizer_json();

// tokenizer_config.json, of a model that reads so many tokens.
Json byte_tokenizer_config_json(std::int64_t context);

}  // namespace ladder
