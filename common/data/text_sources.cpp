#include "common/data/corpus/corpus.hpp"
#include "common/data/preference_pairs.hpp"
#include "common/data/text_file.hpp"
#include "common/data/text_source.hpp"

namespace ladder {
namespace {

std::vector<SqlDocument> corpus_part(bool is_training) {
  return corpus_documents(is_training ? CorpusSplit::kTraining : CorpusSplit::kValidation);
}

TokenizedText read_corpus(const DataOptions& /*options*/, bool is_training, Tokenizer& tokenizer) {
  TokenizedText text{TokenList(tokenizer.vocab_size())};
  for (const SqlDocument& document : corpus_part(is_training))
    append_document(document.text(), tokenizer, text);
  return text;
}

TokenizedText read_corpus_pairs(const DataOptions& /*options*/, bool is_training,
                                Tokenizer& tokenizer) {
  TokenizedText pairs{TokenList(tokenizer.vocab_size())};
  for (const SqlDocument& document : corpus_part(is_training))
    append_pair(document.prompt(), document.answer, document.wrong_answer, tokenizer, pairs);
  return pairs;
}

template <TokenizedText (*read)(const std::string& path, Tokenizer& tokenizer)>
TokenizedText read_file(const DataOptions& options, bool /*is_training*/, Tokenizer& tokenizer) {
  return read(options.source, tokenizer);
}

constexpr TextSource kSources[] = {
    {"corpus", Rows::kWindows, read_corpus},
    {"corpus", Rows::kDocuments, read_corpus},
    {"corpus", Rows::kPairs, read_corpus_pairs},
    {".txt", Rows::kWindows, read_file<read_txt>},
    {".jsonl", Rows::kWindows, read_file<read_jsonl>},
    {".jsonl", Rows::kDocuments, read_file<read_jsonl>},
    {".jsonl", Rows::kPairs, read_file<read_jsonl_pairs>},
};

}  // namespace

std::span<const TextSource> text_sources() {
  return kSources;
}

}  // namespace ladder
