// The built-in corpus: small text-to-SQL documents, the same on every machine, made when they are
// asked for.
//
// A document is a schema, a question about it in English and the answer in SQL. All names and
// values of the answer stand in the schema or the question, so a model can learn to copy them. No
// two documents are alike, and the split that one belongs to follows from a hash of its text alone:
// none can be in both.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ladder {

struct SqlDocument {
  std::string context;  // CREATE TABLE …, one or two of them
  std::string question;
  std::string answer;        // SQL without a semicolon at the end
  std::string wrong_answer;  // another query over the same schema that the question did not ask for

  std::string text() const { return context + '\n' + question + '\n' + answer; }
};

enum class CorpusSplit { kTraining, kValidation };

// All documents of a split, always in the same order. Takes about a tenth of a second.
std::vector<SqlDocument> corpus_documents(CorpusSplit split);

// The split of a document with this text: about one text in twenty is for validation.
CorpusSplit corpus_split_of(const std::string& text);

}  // namespace ladder
