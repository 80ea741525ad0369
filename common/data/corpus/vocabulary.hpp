// The words that the built-in corpus is made of: tables, their columns, and the values of those.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/seed.hpp"

namespace ladder {

using WordList = std::span<const std::string_view>;

struct CorpusColumn {
  std::string_view name;  // as in SQL; a question writes spaces for underscores
  WordList words;         // a text's values; empty for a number
  WordList second_words;  // when there are any, a value is one of `words`, a space and one of these
  std::int64_t low = 0;   // a number's values: low, low + step … high
  std::int64_t high = 0;
  std::int64_t step = 1;
  bool is_additive = false;  // a sum or a mean of it makes sense, as of a price and not of a year
  bool is_category = false;  // a text that many rows share, good to group by

  bool is_text() const { return !words.empty(); }
  std::string value(Random& random) const;
};

struct CorpusTable {
  std::string_view name;  // plural, so that it reads as a noun in a question
  std::vector<CorpusColumn> columns;
};

// A table whose rows each belong to one row of a parent: `key` in the table is `id` in the parent.
struct CorpusDomain {
  CorpusTable table;
  std::string_view preposition;  // "employees in departments", "films by directors"
  CorpusTable parent;
  std::string_view key;
};

const std::vector<CorpusDomain>& corpus_domains();

}  // namespace ladder
