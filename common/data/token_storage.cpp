#include "common/data/token_storage.hpp"

#include <filesystem>

#include "common/core/check.hpp"
#include "common/data/tokenizer_source.hpp"

namespace ladder {
namespace {

TokenizedText tokenize_corpus(CorpusSplit split, Tokenizer& tokenizer) {
  TokenizedText text{TokenList(tokenizer.vocab_size())};
  for (const SqlDocument& document : corpus_documents(split))
    text.append(document.text(), tokenizer);
  return text;
}

PreferencePairs tokenize_corpus_pairs(CorpusSplit split, Tokenizer& tokenizer) {
  PreferencePairs pairs{TokenList(tokenizer.vocab_size())};
  for (const SqlDocument& document : corpus_documents(split))
    pairs.append(document.prompt(), document.answer, document.wrong_answer, tokenizer);
  return pairs;
}

Conversations read_chat(const std::string& path, const DataOptions& options, Tokenizer& tokenizer) {
  const auto tokenizer_files = tokenizer_path(options);
  if (!tokenizer_files.empty()) {
    check_chat_template(std::filesystem::is_directory(tokenizer_files)
                            ? tokenizer_files
                            : tokenizer_files.parent_path());
  }
  return read_jsonl_conversations(path, tokenizer);
}

void check_options(const std::string& option, const std::string& source, const std::string& kind,
                   const DataOptions& options) {
  const std::string given = option + " " + source;
  const bool marks_documents = kind == "corpus" || kind == ".jsonl";
  check_usage(options.rows != Rows::kPairs || marks_documents, given, ": a ", kind,
              " file has no preference pairs; use a .jsonl file whose lines have "
              "\"prompt\", \"chosen\" and \"rejected\", or the built-in corpus");
  check_usage(
      options.rows != Rows::kChat || kind == ".jsonl", given,
      ": --rows chat reads conversations from a .jsonl file whose lines have \"messages\", ",
      "each with a \"role\" and a \"content\"");
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
  if (const auto* text = std::get_if<TokenizedText>(&data)) return text->document_starts;
  if (const auto* chat = std::get_if<Conversations>(&data)) return chat->starts;
  return {};
}

std::vector<std::span<const std::int64_t>> TokenStorage::boundaries() const {
  if (const auto* pairs = std::get_if<PreferencePairs>(&data)) return {pairs->part_ends};
  if (const auto* chat = std::get_if<Conversations>(&data))
    return {chat->starts, chat->range_ends, chat->first_ranges};
  return {document_starts()};
}

TokenStorage open_tokens(const std::string& option, const std::string& source, CorpusSplit split,
                         const DataOptions& options) {
  const std::string kind =
      source == "corpus" ? source : std::filesystem::path(source).extension().string();
  const bool is_text = kind == "corpus" || kind == ".txt" || kind == ".jsonl";
  check_usage(is_text || kind == ".bin", option, " '", source,
              "': unknown kind of data; use corpus (built in), ",
              ".txt (plain text), .jsonl (documents, preference pairs or "
              "conversations) or .bin "
              "(tokens of nanoGPT or llm.c)");
  check_options(option, source, kind, options);
  DataOptions of_source = options;
  of_source.source = source;
  if (has_unknown_tokens(of_source)) {
    const std::int64_t vocab_size = vocab_size_of(of_source);
    return {.name = source,
            .tokenizer = "token file",
            .vocab_size = vocab_size,
            .data = TokenFile(source, vocab_size)};
  }
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(options);
  check_vocab_size(options, *tokenizer);
  const char* part = kind != "corpus"                  ? ""
                     : split == CorpusSplit::kTraining ? ", training part"
                                                       : ", validation part";
  TokenStorage storage{.name = source + part,
                       .tokenizer = tokenizer->name(),
                       .vocab_size = tokenizer->vocab_size(),
                       .padding = tokenizer->padding()};
  for (std::int64_t token = 0; token < storage.vocab_size; ++token) {
    const std::string_view text = tokenizer->text_of(static_cast<std::uint32_t>(token));
    storage.text_bytes.push_back(static_cast<std::uint32_t>(text.size()));
  }
  if (kind == ".bin") {
    storage.data = TokenFile(source, storage.vocab_size);
  } else if (options.rows == Rows::kPairs) {
    storage.data = kind == ".jsonl" ? read_jsonl_pairs(source, *tokenizer)
                                    : tokenize_corpus_pairs(split, *tokenizer);
  } else if (options.rows == Rows::kChat) {
    storage.data = read_chat(source, options, *tokenizer);
  } else {
    storage.data = kind == ".txt"     ? read_txt(source, *tokenizer)
                   : kind == ".jsonl" ? read_jsonl(source, *tokenizer)
                                      : tokenize_corpus(split, *tokenizer);
  }
  return storage;
}

}  // namespace ladder
