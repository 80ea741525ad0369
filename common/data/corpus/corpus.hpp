// The built-in corpus: small text-to-SQL documents, the same on every machine, generated on demand.
//
// A document is a schema, an English question about it, and the answer in SQL. All names and values
// in the answer also appear in the schema or the question, so a model can learn to copy them. No
// two documents are equal. A hash of a document's text alone determines its split, so none is in
// both.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ladder {

struct SqlDocument {
  std::string context;  // one or two CREATE TABLE …
  std::string question;
  std::string answer;        // SQL without a final semicolon
  std::string wrong_answer;  // a query over the same schema that does not answer the question

  std::string prompt() const { return context + '\n' + question; }
  std::string text() const { return prompt() + '\n' + answer; }
};

enum class CorpusSplit { kTraining, kValidation };

// Generates all documents of a split, always in the same order: about one in twenty is for
// validation. Takes about a tenth of a second.
std::vector<SqlDocument> corpus_documents(CorpusSplit split);

}  // namespace ladder
