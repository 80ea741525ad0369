#include "common/data/corpus/corpus.hpp"

#include <unordered_set>
#include <utility>

#include "common/core/seed.hpp"
#include "common/data/corpus/schema.hpp"
#include "common/data/corpus/sql_query.hpp"

namespace ladder {
namespace {

constexpr std::uint64_t kCorpusSeed = 1;      // not the run's: the corpus is the same for all
constexpr std::size_t kNumDocuments = 26000;  // of both splits
constexpr std::int64_t kValidationOneIn = 20;

CorpusSplit split_of(std::uint64_t hash) {
  return hash % kValidationOneIn == 0 ? CorpusSplit::kValidation : CorpusSplit::kTraining;
}

SqlDocument sample_document(Random& random) {
  const CorpusSchema schema = sample_schema(random);
  const SqlQuery query = sample_query(schema, random);
  SqlDocument document;
  document.context = schema.create_statements();
  document.question = ask(query, schema, random);
  document.answer = to_sql(query, schema);
  document.wrong_answer = to_sql(corrupt(query, schema, random), schema);
  return document;
}

}  // namespace

std::vector<SqlDocument> corpus_documents(CorpusSplit split) {
  Random random(derive_seed(kCorpusSeed, "corpus"));
  std::unordered_set<std::uint64_t> seen;
  std::vector<SqlDocument> documents;
  while (seen.size() < kNumDocuments) {
    SqlDocument document = sample_document(random);
    const std::uint64_t hash = derive_seed(kCorpusSeed, document.text());
    const bool is_new = seen.insert(hash).second;
    if (is_new && split_of(hash) == split) documents.push_back(std::move(document));
  }
  return documents;
}

}  // namespace ladder
