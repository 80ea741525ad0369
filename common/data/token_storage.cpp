#include "common/data/token_storage.hpp"

#include <filesystem>

#include "common/core/check.hpp"
#include "common/data/tokenizer.hpp"

namespace ladder {
namespace {

TokenizedText tokenize_corpus(CorpusSplit split) {
  TokenizedText text;
  for (const SqlDocument& document : corpus_documents(split)) text.append(document.text());
  return text;
}

PreferencePairs tokenize_corpus_pairs(CorpusSplit split) {
  PreferencePairs pairs;
  for (const SqlDocument& document : corpus_documents(split))
    pairs.append(document.prompt(), document.answer, document.wrong_answer);
  return pairs;
}

void check_options(const std::string& option, const std::string& source, const std::string& kind,
                   const DataOptions& options) {
  const std::string given = option + " " + source;
  if (kind == ".bin") {
    check_usage(options.vocab_size > 0, given,
                ": a token file does not record its vocabulary size, and --vocab-size is ",
                options.vocab_size, "; set it, for example --vocab-size 50257 for GPT-2's tokens");
  } else {
    check_usage(options.vocab_size == 0 || options.vocab_size == ByteTokenizer::kVocabSize, given,
                ": text has a vocabulary of ", ByteTokenizer::kVocabSize,
                " byte tokens, so --vocab-size ", options.vocab_size,
                " does not fit; leave it out");
  }
  const bool marks_documents = kind == "corpus" || kind == ".jsonl";
  check_usage(options.rows != Rows::kPairs || marks_documents, given, ": a ", kind,
              " file has no preference pairs; use a .jsonl file whose lines have "
              "\"prompt\", \"chosen\" and \"rejected\", or the built-in corpus");
  check_usage(options.rows != Rows::kDocuments || marks_documents, given,
              ": --rows documents needs to know where documents end, which a ", kind,
              " file does not record; use --rows windows, a .jsonl file or the built-in corpus");
}

}  // namespace

std::int64_t TokenStorage::num_tokens() const {
  return visit([](auto tokens) { return static_cast<std::int64_t>(tokens.size()); });
}

std::int64_t TokenStorage::token_bytes() const {
  return visit([](auto tokens) { return static_cast<std::int64_t>(sizeof(tokens[0])); });
}

std::span<const std::int64_t> TokenStorage::document_starts() const {
  const auto* text = std::get_if<TokenizedText>(&data);
  return text == nullptr ? std::span<const std::int64_t>() : text->document_starts;
}

std::span<const std::int64_t> TokenStorage::boundaries() const {
  const auto* pairs = std::get_if<PreferencePairs>(&data);
  return pairs == nullptr ? document_starts() : pairs->part_ends;
}

TokenStorage open_tokens(const std::string& option, const std::string& source, CorpusSplit split,
                         const DataOptions& options) {
  const std::string kind =
      source == "corpus" ? source : std::filesystem::path(source).extension().string();
  const bool is_text = kind == "corpus" || kind == ".txt" || kind == ".jsonl";
  check_usage(is_text || kind == ".bin", option, " '", source,
              "': unknown kind of data; use corpus (built in), ",
              ".txt (plain text), .jsonl (text-to-SQL documents, or preference pairs) or .bin "
              "(tokens of nanoGPT or llm.c)");
  check_options(option, source, kind, options);
  if (kind == ".bin")
    return {source, "token file", options.vocab_size, TokenFile(source, options.vocab_size)};
  const char* part = kind != "corpus"                  ? ""
                     : split == CorpusSplit::kTraining ? ", training part"
                                                       : ", validation part";
  TokenStorage storage{source + part, "bytes", ByteTokenizer::kVocabSize};
  if (options.rows == Rows::kPairs) {
    storage.data = kind == ".jsonl" ? read_jsonl_pairs(source) : tokenize_corpus_pairs(split);
  } else {
    storage.data = kind == ".txt"     ? read_txt(source)
                   : kind == ".jsonl" ? read_jsonl(source)
                                      : tokenize_corpus(split);
  }
  return storage;
}

}  // namespace ladder
