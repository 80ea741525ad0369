#include "common/data/dataset.hpp"

#include <ATen/Functions.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "common/core/byte_hash.hpp"
#include "common/core/check.hpp"
#include "common/data/conversations.hpp"
#include "common/data/corpus/corpus.hpp"
#include "common/data/options.hpp"
#include "common/data/preference_pairs.hpp"
#include "common/data/text_file.hpp"
#include "common/data/token_file.hpp"
#include "common/data/tokenizer_source.hpp"

namespace ladder {

// What has been read from a source, whatever it is.
struct TokenStorage {
  std::string name;       // of the source, for messages
  std::string tokenizer;  // its name, or "token file" if nobody says whose tokens they are
  std::int64_t vocab_size = 0;
  std::int64_t padding = 0;
  std::vector<std::uint32_t> text_bytes = {};  // that each token stands for; empty: not known
  std::variant<TokenizedText, PreferencePairs, Conversations, TokenFile> data = {};

  std::int64_t num_tokens() const;
  // Where each document or conversation begins; empty for pairs, and for a token file, which does
  // not record this.
  std::span<const std::int64_t> document_starts() const;
  // All that says which tokens belong together, and which of them are targets.
  std::vector<std::span<const std::int64_t>> boundaries() const;
  // Calls visitor(span of uint16 or uint32) with all tokens.
  template <class Visitor>
  decltype(auto) visit(Visitor&& visitor) const {
    if (const auto* file = std::get_if<TokenFile>(&data))
      return file->token_bytes() == 2 ? visitor(file->tokens16()) : visitor(file->tokens32());
    if (const auto* pairs = std::get_if<PreferencePairs>(&data))
      return pairs->tokens.visit(visitor);
    if (const auto* chat = std::get_if<Conversations>(&data)) return chat->tokens.visit(visitor);
    return std::get<TokenizedText>(data).tokens.visit(visitor);
  }
};

std::int64_t TokenStorage::num_tokens() const {
  return visit([](auto tokens) { return static_cast<std::int64_t>(tokens.size()); });
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

// Opens `source`, the value of `option` ("--data" or "--val-data"): a file, or `split` of "corpus".
// The data is a PreferencePairs for Rows::kPairs, Conversations for Rows::kChat, and else a
// TokenizedText or a TokenFile. Throws UsageError for an unknown kind of file, a vocab_size that
// does not fit, and if the source does not have what the rows need. Throws CheckError if a file is
// missing or damaged, or the tokenizer or its chat template is not supported.
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

}  // namespace

// How the stored tokens are divided into samples.
struct Dataset::Tokens {
  TokenStorage storage;
  Rows rows = Rows::kWindows;
  std::int64_t context = 1;
  std::int64_t num_samples = 0;
  std::int64_t bytes_read = 0;
  std::string source_hash;  // once asked for

  const PreferencePairs& pairs() const { return std::get<PreferencePairs>(storage.data); }
  const Conversations& chat() const { return std::get<Conversations>(storage.data); }

  // The tokens of sample k, unless it is a pair: T + 1 of a window, at most as many of a document.
  std::int64_t first_token(std::int64_t k) const {
    return rows == Rows::kWindows ? k * context
                                  : storage.document_starts()[static_cast<std::size_t>(k)];
  }
  std::int64_t document_length(std::int64_t k) const {
    return (k + 1 < num_samples ? first_token(k + 1) : storage.num_tokens()) - first_token(k);
  }
  std::int64_t sample_length(std::int64_t k) const {
    return rows == Rows::kWindows ? context + 1 : std::min(document_length(k), context + 1);
  }
  std::int64_t rows_per_sample() const { return rows == Rows::kPairs ? 2 : 1; }
  RowTokens row(std::int64_t k, std::int64_t row_of_sample) const {
    if (rows == Rows::kPairs)
      return pairs().row(k, row_of_sample == 0 ? Answer::kChosen : Answer::kRejected, context);
    if (rows == Rows::kChat) return chat().row(k, context);
    return {{{first_token(k), sample_length(k)}}};
  }
  bool has_target(std::int64_t k) const {
    return rows == Rows::kPairs || row(k, 0).num_targets() > 0;
  }
  std::int64_t num_documents(std::int64_t k) const {
    if (rows == Rows::kPairs) return 1;
    if (rows != Rows::kWindows) return sample_length(k) > 1;  // or there is nothing to predict
    const auto starts = storage.document_starts();
    const auto begin = std::ranges::lower_bound(starts, first_token(k));
    return std::ranges::lower_bound(begin, starts.end(), first_token(k) + context) - begin;
  }
  // Of documents and pairs.
  std::int64_t num_cut() const {
    std::int64_t num_cut = 0;
    for (std::int64_t k = 0; k < num_samples; ++k) {
      num_cut +=
          rows == Rows::kPairs ? pairs().is_cut(k, context) : document_length(k) > context + 1;
    }
    return num_cut;
  }
};

namespace {

std::int64_t count_samples(const TokenStorage& storage, Rows rows, std::int64_t context) {
  switch (rows) {
    case Rows::kWindows:
      return (storage.num_tokens() - 1) / context;
    case Rows::kDocuments:
    case Rows::kChat:
      return static_cast<std::int64_t>(storage.document_starts().size());
    case Rows::kPairs:
      return std::get<PreferencePairs>(storage.data).num_pairs();
  }
  return 0;
}

// Its position in a row that is not cut: the smallest context that shows a target.
std::int64_t first_target(const RowTokens& whole) {
  std::int64_t first = 0;
  whole.for_each([&](std::int64_t, std::int64_t position, bool is_target) {
    if (first == 0 && is_target) first = position;
  });
  return first;
}

// Why none of the first `count` samples has a target, and what to do about it.
std::string explain_no_target(const TokenStorage& storage, const std::string& source,
                              std::int64_t count, std::int64_t context) {
  const auto* chat = std::get_if<Conversations>(&storage.data);
  if (chat == nullptr)
    return concat("each of its ", count, " documents is empty, from ", place_of_object(source, 0),
                  " on, so there is nothing to predict");
  std::int64_t shortest = 0, least = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t k = 0; k < count; ++k) {
    const std::int64_t needed = first_target(chat->row(k, chat->length(k)));
    if (needed < least) shortest = k, least = needed;
  }
  return concat("--context ", context, " cuts each of the first ", count,
                " conversations off before the assistant's answer, so there is nothing to learn; ",
                place_of_object(source, shortest), " needs --context ", least,
                ", the others at least as much");
}

void add_numbers(ByteHash& hash, auto numbers) {  // with their count: no two lists run together
  const std::size_t count = numbers.size();
  hash.update(&count, sizeof count);
  hash.update(numbers.data(), numbers.size_bytes());
}

void add_source(ByteHash& hash, const TokenStorage& storage) {
  storage.visit([&](auto stored) { add_numbers(hash, stored); });
  for (const auto& numbers : storage.boundaries()) add_numbers(hash, numbers);
}

}  // namespace

Dataset::Dataset(std::unique_ptr<Tokens> tokens) : tokens_(std::move(tokens)) {}
Dataset::~Dataset() = default;
Dataset::Dataset(Dataset&&) noexcept = default;
Dataset& Dataset::operator=(Dataset&&) noexcept = default;

Dataset Dataset::open(const std::string& option, const std::string& source, bool is_training,
                      const DataOptions& options) {
  check_usage(options.context >= 1, "--context is ", options.context, ", it must be at least 1");
  const auto split = is_training ? CorpusSplit::kTraining : CorpusSplit::kValidation;
  auto tokens = std::make_unique<Tokens>();
  tokens->storage = open_tokens(option, source, split, options);
  tokens->rows = options.rows;
  tokens->context = options.context;
  const std::int64_t num_tokens = tokens->storage.num_tokens();
  tokens->num_samples = count_samples(tokens->storage, options.rows, options.context);
  check(tokens->num_samples > 0, option, " ", source, ": has ", num_tokens,
        " tokens; one sample with --context ", options.context, " takes ", options.context + 1,
        "; use a smaller --context or more data");
  const std::int64_t used = is_training || options.validation_samples == 0
                                ? tokens->num_samples
                                : std::min(tokens->num_samples, options.validation_samples);
  std::int64_t first = 0;  // sample with a target
  while (first < used && !tokens->has_target(first)) ++first;
  check(first < used, option, " ", source, ": ",
        [&] { return explain_no_target(tokens->storage, source, used, options.context); });
  return Dataset(std::move(tokens));
}

Dataset Dataset::open_training(const DataOptions& options) {
  return open("--data", options.source, /*is_training=*/true, options);
}

Dataset Dataset::open_validation(const DataOptions& options) {
  if (!options.validation_source.empty()) {
    return open("--val-data", options.validation_source, /*is_training=*/false, options);
  }
  if (options.source == "corpus")
    return open("--data", options.source, /*is_training=*/false, options);
  auto none = std::make_unique<Tokens>();
  none->storage.name = "none";
  none->context = options.context;
  return Dataset(std::move(none));
}

std::int64_t Dataset::num_samples() const {
  return tokens_->num_samples;
}
std::int64_t Dataset::num_tokens() const {
  return tokens_->storage.num_tokens();
}
std::int64_t Dataset::num_documents() const {
  if (tokens_->rows == Rows::kPairs) return num_samples();
  return static_cast<std::int64_t>(tokens_->storage.document_starts().size());
}
std::int64_t Dataset::vocab_size() const {
  return tokens_->storage.vocab_size;
}
std::string Dataset::tokenizer() const {
  return tokens_->storage.tokenizer;
}
std::int64_t Dataset::bytes_read() const {
  return tokens_->bytes_read;
}

std::string Dataset::description() const {
  const TokenStorage& storage = tokens_->storage;
  if (num_samples() == 0) return storage.name;
  const std::string thing = tokens_->rows == Rows::kPairs  ? "pair"
                            : tokens_->rows == Rows::kChat ? "conversation"
                                                           : "document";
  std::string text = storage.name + ": ";
  if (num_documents() > 0)
    text += concat(num_documents(), " ", thing, num_documents() == 1 ? ", " : "s, ");
  text += concat(num_tokens(), " tokens (", tokenizer(), ", vocabulary ", vocab_size(), "), ",
                 num_samples() * tokens_->rows_per_sample());
  if (tokens_->rows == Rows::kWindows) return text + concat(" windows of ", tokens_->context);
  return text + concat(" rows of ", tokens_->context, ", ", tokens_->num_cut(), " ", thing,
                       "s cut to fit");
}

std::string Dataset::content_hash() const {
  ByteHash hash;
  const std::int64_t cut[] = {static_cast<std::int64_t>(tokens_->rows), tokens_->context};
  add_numbers(hash, std::span(cut));
  hash.update(source_hash().data(), source_hash().size());
  return hash.digest();
}

const std::string& Dataset::source_hash() const {
  if (tokens_->source_hash.empty()) {
    ByteHash hash;
    add_source(hash, tokens_->storage);
    tokens_->source_hash = hash.digest();
  }
  return tokens_->source_hash;
}

TargetText Dataset::text_of_targets(std::int64_t num_samples) const {
  const std::vector<std::uint32_t>& text_bytes = tokens_->storage.text_bytes;
  TargetText sum;
  if (text_bytes.empty()) return sum;
  tokens_->storage.visit([&](auto stored) {
    for (std::int64_t k = 0; k < num_samples; ++k) {
      for (std::int64_t row = 0; row < tokens_->rows_per_sample(); ++row) {
        tokens_->row(k, row).for_each([&](std::int64_t place, std::int64_t, bool is_target) {
          if (!is_target) return;
          ++sum.num_targets;
          sum.num_bytes += text_bytes[stored[static_cast<std::size_t>(place)]];
        });
      }
    }
  });
  return sum;
}

Microbatch Dataset::read(std::span<const std::int64_t> indices) const {
  const std::int64_t context = tokens_->context;
  const std::int64_t rows_per_sample = tokens_->rows_per_sample();
  const std::vector<std::int64_t> shape = {
      static_cast<std::int64_t>(indices.size()) * rows_per_sample, context};
  Microbatch microbatch{at::empty(shape, at::kLong), at::empty(shape, at::kLong)};
  microbatch.samples.assign(indices.begin(), indices.end());
  for (const std::int64_t k : indices) {
    check(0 <= k && k < num_samples(), "sample ", k, " does not exist: ", tokens_->storage.name,
          " has ", num_samples());
    microbatch.num_documents += tokens_->num_documents(k);
  }
  auto* tokens = microbatch.tokens.mutable_data_ptr<std::int64_t>();
  auto* targets = microbatch.targets.mutable_data_ptr<std::int64_t>();
  tokens_->storage.visit([&](auto stored) {
    for (std::int64_t row_of_sample = 0; row_of_sample < rows_per_sample; ++row_of_sample) {
      for (const std::int64_t k : indices) {
        const RowTokens row = tokens_->row(k, row_of_sample);
        write_row(row, stored, context, tokens_->storage.padding, tokens, targets);
        tokens += context;
        targets += context;
        microbatch.num_targets += row.num_targets();
        tokens_->bytes_read += row.length() * static_cast<std::int64_t>(sizeof(stored[0]));
      }
    }
  });
  return microbatch;
}

}  // namespace ladder
