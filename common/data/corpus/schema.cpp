#include "common/data/corpus/schema.hpp"

#include <algorithm>
#include <utility>

namespace ladder {
namespace {

// Three to five columns of the table, in random order, so that their positions reveal nothing.
SchemaTable sample_table(const CorpusTable& table, Random& random) {
  SchemaTable sampled{table.name, {}};
  const auto size = static_cast<std::int64_t>(table.columns.size());
  const std::int64_t num_columns = std::min<std::int64_t>(3 + random.below(3), size);
  const auto is_text = [](const CorpusColumn* column) { return column->is_text(); };
  while (true) {
    sampled.columns.clear();
    for (const CorpusColumn& column : table.columns) sampled.columns.push_back(&column);
    for (std::int64_t i = 0; i < num_columns; ++i) {
      std::swap(sampled.columns[static_cast<std::size_t>(i)],
                sampled.columns[static_cast<std::size_t>(i + random.below(size - i))]);
    }
    sampled.columns.resize(static_cast<std::size_t>(num_columns));
    const auto num_texts = std::count_if(sampled.columns.begin(), sampled.columns.end(), is_text);
    if (0 < num_texts && num_texts < num_columns) return sampled;
  }
}

std::string create_statement(const SchemaTable& table, std::string_view first_column,
                             std::string_view last_column) {
  std::string text = "CREATE TABLE " + std::string(table.name) + " (";
  if (!first_column.empty()) text += std::string(first_column) + " INT, ";
  for (const CorpusColumn* column : table.columns) {
    if (column != table.columns.front()) text += ", ";
    text += std::string(column->name) + (column->is_text() ? " TEXT" : " INT");
  }
  if (!last_column.empty()) text += ", " + std::string(last_column) + " INT";
  return text + ")";
}

}  // namespace

std::string CorpusSchema::create_statements() const {
  if (!other) return create_statement(main, "", "");
  const std::string_view key = domain->key;
  if (main_has_parent)
    return create_statement(main, "", key) + "; " + create_statement(*other, "id", "");
  return create_statement(main, "id", "") + "; " + create_statement(*other, "", key);
}

CorpusSchema sample_schema(Random& random) {
  const auto& domains = corpus_domains();
  const auto number = random.below(static_cast<std::int64_t>(domains.size()));
  CorpusSchema schema;
  schema.domain = &domains[static_cast<std::size_t>(number)];
  const bool is_about_parent = random.below(3) == 0;
  const bool shows_both = random.below(3) == 0;
  schema.main =
      sample_table(is_about_parent ? schema.domain->parent : schema.domain->table, random);
  if (!shows_both) return schema;
  schema.other =
      sample_table(is_about_parent ? schema.domain->table : schema.domain->parent, random);
  schema.main_has_parent = !is_about_parent;
  return schema;
}

}  // namespace ladder
