// The schema of a document of the built-in corpus: its tables and their columns, and the words that
// columns are named by and hold.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/core/seed.hpp"

namespace ladder {

using WordList = std::span<const std::string>;

// One of them, each as likely as any other.
template <class Elements>
const auto& pick_from(const Elements& elements, Random& random) {
  return elements[static_cast<std::size_t>(random.below(std::ssize(elements)))];
}

struct CorpusColumn {
  std::string name;       // as in SQL; a question writes spaces for underscores
  WordList words;         // the values of a text; empty for a number
  WordList second_words;  // if not empty, a value is one of `words`, a space and one of these
  std::int64_t low = 0;   // the values of a number: low, low + step … high
  std::int64_t high = 0;
  std::int64_t step = 1;
  bool is_additive = false;  // its sum or mean makes sense: true of a price, not of a year

  std::string value(Random& random) const;
};

// Kinds of columns.
bool is_any(const CorpusColumn& column);
bool is_number(const CorpusColumn& column);
bool is_text(const CorpusColumn& column);
bool is_category(const CorpusColumn& column);  // a text shared by many rows, good to group by

struct CorpusTable {
  std::string name;  // plural, so that it can be used as a noun in a question
  std::vector<CorpusColumn> columns;

  // A random column of this kind that is not in `except`; nullptr if there is none.
  const CorpusColumn* pick(Random& random, bool (*is_of_kind)(const CorpusColumn&),
                           const std::vector<const CorpusColumn*>& except = {}) const;
};

// A table whose rows each belong to one row of a parent: `key` in the table is `id` in the parent.
struct CorpusDomain {
  CorpusTable table;
  std::string preposition;  // "employees in departments", "films by directors"
  CorpusTable parent;
  std::string key;
};

const std::vector<CorpusDomain>& corpus_domains();

// The question is about `main`. `other`, if present, is the parent that main's rows belong to, or a
// table that the question does not need. Each has three to five columns, including at least one
// text and one number.
struct CorpusSchema {
  const CorpusDomain* domain = nullptr;
  CorpusTable main;
  std::optional<CorpusTable> other;
  bool main_has_parent = false;  // `other` is main's parent, so they can be joined

  std::string create_statements() const;
};

CorpusSchema sample_schema(Random& random);

}  // namespace ladder
