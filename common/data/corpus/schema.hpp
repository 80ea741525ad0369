// The schema of a document: its tables and their columns.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/core/seed.hpp"
#include "common/data/corpus/vocabulary.hpp"

namespace ladder {

struct SchemaTable {
  std::string_view name;
  // Three to five, including at least one text and one number.
  std::vector<const CorpusColumn*> columns;

  // Returns a random column that `accept` accepts and that is not in `except`; nullptr if there is
  // none.
  template <class Accept>
  const CorpusColumn* pick(Random& random, Accept accept,
                           std::vector<const CorpusColumn*> except = {}) const;
};

// The question is about `main`. `other`, if present, is the parent that main's rows belong to, or a
// table that the question does not need.
struct CorpusSchema {
  const CorpusDomain* domain = nullptr;
  SchemaTable main;
  std::optional<SchemaTable> other;
  bool main_has_parent = false;  // `other` is main's parent, so they can be joined

  std::string create_statements() const;
};

CorpusSchema sample_schema(Random& random);

template <class Accept>
const CorpusColumn* SchemaTable::pick(Random& random, Accept accept,
                                      std::vector<const CorpusColumn*> except) const {
  std::vector<const CorpusColumn*> candidates;
  for (const CorpusColumn* column : columns) {
    bool is_candidate = accept(*column);
    for (const CorpusColumn* other : except) is_candidate = is_candidate && other != column;
    if (is_candidate) candidates.push_back(column);
  }
  if (candidates.empty()) return nullptr;
  return candidates[static_cast<std::size_t>(
      random.below(static_cast<std::int64_t>(candidates.size())))];
}

}  // namespace ladder
