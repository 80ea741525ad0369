// Options of data whose tokenizer's files have been read, for tests that do without finalize().
#pragma once

#include "common/data/bpe/named_tokenizer.hpp"

namespace ladder {

inline DataOptions with_tokenizer(DataOptions options) {
  options.tokenizer_files = read_tokenizer(options);
  return options;
}

}  // namespace ladder
