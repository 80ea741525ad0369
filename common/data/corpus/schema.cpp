#include "common/data/corpus/schema.hpp"

#include <algorithm>
#include <utility>

namespace ladder {
namespace {

// Three to five columns of the table, in random order, so that their positions reveal nothing.
CorpusTable sample_table(const CorpusTable& table, Random& random) {
  const auto size = static_cast<std::int64_t>(table.columns.size());
  const std::int64_t num_columns = std::min<std::int64_t>(3 + random.below(3), size);
  while (true) {
    CorpusTable sampled = table;
    for (std::int64_t i = 0; i < num_columns; ++i) {
      std::swap(sampled.columns[static_cast<std::size_t>(i)],
                sampled.columns[static_cast<std::size_t>(i + random.below(size - i))]);
    }
    sampled.columns.resize(static_cast<std::size_t>(num_columns));
    const auto num_texts = std::count_if(sampled.columns.begin(), sampled.columns.end(), is_text);
    if (0 < num_texts && num_texts < num_columns) return sampled;
  }
}

std::string create_statement(const CorpusTable& table, const std::string& before = "",
                             const std::string& after = "") {
  std::string columns;
  for (const CorpusColumn& column : table.columns) {
    if (!columns.empty()) columns += ", ";
    columns += column.name + (is_text(column) ? " TEXT" : " INT");
  }
  return "CREATE TABLE " + table.name + " (" + before + columns + after + ")";
}

}  // namespace

std::string CorpusSchema::create_statements() const {
  if (!other) return create_statement(main);
  const std::string id = "id INT, ", key = ", " + domain->key + " INT";
  return main_has_parent ? create_statement(main, "", key) + "; " + create_statement(*other, id)
                         : create_statement(main, id) + "; " + create_statement(*other, "", key);
}

CorpusSchema sample_schema(Random& random) {
  const auto& domains = corpus_domains();
  const auto number = random.below(static_cast<std::int64_t>(domains.size()));
  const CorpusDomain& domain = domains[static_cast<std::size_t>(number)];
  const bool is_about_parent = random.below(3) == 0;
  const bool shows_both = random.below(3) == 0;
  CorpusSchema schema = {&domain,
                         sample_table(is_about_parent ? domain.parent : domain.table, random)};
  if (!shows_both) return schema;
  schema.other = sample_table(is_about_parent ? domain.table : domain.parent, random);
  schema.main_has_parent = !is_about_parent;
  return schema;
}

}  // namespace ladder
