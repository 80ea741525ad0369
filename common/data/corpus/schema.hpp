// The schema of a document: its tables and their columns.
#pragma once

#include <optional>
#include <string>

#include "common/core/seed.hpp"
#include "common/data/corpus/vocabulary.hpp"

namespace ladder {

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
