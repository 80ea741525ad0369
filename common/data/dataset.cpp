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
#include <vector>

#include "common/core/byte_hash.hpp"
#include "common/core/check.hpp"
#include "common/data/conversations.hpp"
#include "common/data/encoded_file.hpp"
#include "common/data/options.hpp"
#include "common/data/preference_pairs.hpp"
#include "common/data/text_file.hpp"
#include "common/data/text_source.hpp"
#include "common/data/token_file.hpp"
#include "common/data/tokenizer_source.hpp"

namespace ladder {

// What has been read from a source, whatever it is, and how it is divided into samples.
struct StoredSamples {
  std::string name;       // of the source, for messages
  std::string tokenizer;  // its name, or "token file" if nobody says whose tokens they are
  std::int64_t vocab_size = 0;
  std::int64_t padding = 0;
  std::vector<std::uint32_t> text_bytes = {};  // that each token stands for; empty: not known
  std::optional<TokenFile> file = {};          // which does not record where documents begin
  TokenizedText text = {};                     // without a file
  Rows rows = Rows::kWindows;
  std::int64_t context = 1;
  std::int64_t bytes_read = 0;
  std::string source_hash = {};  // once asked for

  // Calls visitor(span of uint16 or uint32) with all tokens.
  template <class Visitor>
  decltype(auto) visit(Visitor&& visitor) const {
    return file ? file->visit(visitor) : text.tokens.visit(visitor);
  }
  std::int64_t num_tokens() const {
    return visit([](auto tokens) { return static_cast<std::int64_t>(tokens.size()); });
  }
  std::int64_t num_samples() const {
    return rows == Rows::kWindows ? std::max<std::int64_t>(num_tokens() - 1, 0) / context
                                  : std::ssize(text.starts);
  }
  std::int64_t rows_per_sample() const { return rows == Rows::kPairs ? 2 : 1; }

  // Cut to at most this context + 1 tokens, which a window has.
  RowTokens row(std::int64_t k, std::int64_t row_of_sample, std::int64_t most) const {
    if (rows == Rows::kPairs)
      return row_of_pair(text, k, row_of_sample == 0 ? Answer::kChosen : Answer::kRejected, most);
    if (rows == Rows::kChat) return row_of_conversation(text, k, most);
    if (rows == Rows::kWindows) return {{{k * most, most + 1}}};
    const std::int64_t begin = text.starts[static_cast<std::size_t>(k)];
    return {{{begin, std::min(text.length(k), most + 1)}}};
  }
  RowTokens row(std::int64_t k, std::int64_t row_of_sample = 0) const {
    return row(k, row_of_sample, context);
  }
  RowTokens uncut_row(std::int64_t k, std::int64_t row_of_sample = 0) const {
    return row(k, row_of_sample, std::numeric_limits<std::int64_t>::max() / 2);
  }
  std::int64_t num_documents(std::int64_t k) const {
    if (rows != Rows::kWindows) return text.length(k) > 1;  // or there is nothing to predict
    const auto begin = std::ranges::lower_bound(text.starts, k * context);
    return std::ranges::lower_bound(begin, text.starts.end(), (k + 1) * context) - begin;
  }
  // How many documents, conversations or pairs lose something in a row.
  std::int64_t num_cut() const {
    std::int64_t num_cut = 0;
    for (std::int64_t k = 0; k < num_samples(); ++k) {
      bool is_cut = false;
      for (std::int64_t r = 0; r < rows_per_sample(); ++r)
        is_cut = is_cut || uncut_row(k, r).length() > context + 1;
      num_cut += is_cut;
    }
    return num_cut;
  }
  // All that says which tokens belong together, and which of them are targets.
  std::vector<std::span<const std::int64_t>> boundaries() const {
    if (rows == Rows::kPairs) return {text.part_ends};
    if (rows == Rows::kChat) return {text.starts, text.part_ends, text.first_parts};
    return {text.starts};
  }
};

namespace {

// Null: nothing of this kind is read as such rows.
const TextSource* find_source(const std::string& kind, Rows rows) {
  for (const TextSource& each : text_sources())
    if (each.kind == kind && each.rows == rows) return &each;
  return nullptr;
}

// `has` is what the file consists of.
void check_rows_of_encoded(const std::string& given, Rows has, Rows wanted) {
  const bool is_text = has == Rows::kDocuments;
  const bool fits =
      is_text ? wanted == Rows::kWindows || wanted == Rows::kDocuments : wanted == has;
  check_usage(fits, given, ": was encoded as ",
              is_text              ? "documents; give --rows windows or --rows documents"
              : has == Rows::kChat ? "conversations; give --rows chat"
                                   : "preference pairs; give --objective dpo",
              ", or encode it anew, with other options of ./ladder encode");
}

void check_options(const std::string& option, const std::string& source, const std::string& kind,
                   Rows rows) {
  const std::string given = option + " " + source;
  const bool has_rows = find_source(kind, rows) != nullptr;
  check_usage(
      rows != Rows::kPairs || has_rows, given, ": a ", kind,
      " file has no preference pairs; use a .jsonl file whose lines have "
      "\"prompt\", \"chosen\" and \"rejected\", the built-in corpus, or what ./ladder encode "
      "--pairs writes");
  check_usage(rows != Rows::kChat, given,
              ": --rows chat reads conversations that ./ladder encode --chat has written: "
              "./ladder encode MODEL FILE.jsonl FILE.bin --chat");
  check_usage(rows != Rows::kDocuments || has_rows, given,
              ": --rows documents needs to know where documents end, which a ", kind,
              " file does not record; use --rows windows, a .jsonl file or the built-in corpus");
}

// Opens `source`, the value of `option` ("--data" or "--val-data"). Throws UsageError for an unknown
// kind of file, a vocab_size that does not fit, and if the source does not have what the rows need.
// Throws CheckError if a file is missing or damaged, or the tokenizer or its chat template is not
// supported.
StoredSamples open_samples(const std::string& option, const std::string& source, bool is_training,
                           const DataOptions& options) {
  const std::string kind =
      source == "corpus" ? source : std::filesystem::path(source).extension().string();
  check_usage(find_source(kind, Rows::kWindows) != nullptr || kind == ".bin", option, " '", source,
              "': unknown kind of data; use corpus (built in), ",
              ".txt (plain text), .jsonl (documents or preference pairs) or .bin "
              "(token ids of ./ladder encode, nanoGPT or llm.c)");
  std::optional<EncodedFile> encoded;
  if (is_encoded(source)) {
    encoded.emplace(source);
    check_rows_of_encoded(option + " " + source, encoded->rows(), options.rows);
  } else {
    check_options(option, source, kind, options.rows);
  }
  DataOptions of_source = options;
  of_source.source = source;
  StoredSamples samples{.name = source, .rows = options.rows, .context = options.context};
  if (has_unknown_tokens(of_source)) {
    samples.tokenizer = "token file";
    samples.vocab_size = vocab_size_of(of_source);
    samples.file.emplace(source, samples.vocab_size);
    return samples;
  }
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(options);
  check_vocab_size(options, *tokenizer);
  samples.tokenizer = tokenizer->name();
  samples.vocab_size = tokenizer->vocab_size();
  samples.padding = tokenizer->padding();
  for (std::int64_t token = 0; token < samples.vocab_size; ++token) {
    const std::string_view text = tokenizer->text_of(static_cast<std::uint32_t>(token));
    samples.text_bytes.push_back(static_cast<std::uint32_t>(text.size()));
  }
  if (kind == "corpus") samples.name += is_training ? ", training part" : ", validation part";
  if (kind == ".bin") {
    samples.file.emplace(source, samples.vocab_size);
    if (encoded) {
      const std::string encoded_with = encoded->open()->name();
      check(encoded_with == samples.tokenizer, option, " ", source, ": was encoded with '",
            encoded_with, "', and the tokenizer of this run is '", samples.tokenizer,
            "': encode what you train on and what you validate with the same files");
      samples.text = encoded->boundaries();
    }
  } else {
    samples.text = find_source(kind, options.rows)->read(of_source, is_training, *tokenizer);
  }
  return samples;
}

// The position of the first target in a row that is not cut: the smallest context that shows a
// target.
std::int64_t first_target(const RowTokens& whole) {
  std::int64_t first = 0;
  whole.for_each([&](std::int64_t, std::int64_t position, bool is_target) {
    if (first == 0 && is_target) first = position;
  });
  return first;
}

// Why none of the first `count` samples has a target, and what to do about it.
std::string explain_no_target(const StoredSamples& samples, const std::string& source,
                              std::int64_t count) {
  const auto place_of = [&](std::int64_t k) {
    return samples.file ? concat("document ", k) : place_of_object(source, k);
  };
  if (samples.rows != Rows::kChat)
    return concat("each of its ", count, " documents is empty, from ", place_of(0),
                  " on, so there is nothing to predict");
  std::int64_t shortest = 0, least = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t k = 0; k < count; ++k) {
    const std::int64_t needed = first_target(samples.uncut_row(k));
    if (needed < least) shortest = k, least = needed;
  }
  return concat("--context ", samples.context, " cuts each of the first ", count,
                " conversations off before the assistant's answer, so there is nothing to learn; ",
                "conversation ", shortest, " needs --context ", least,
                ", the others at least as much");
}

void add_numbers(ByteHash& hash, auto numbers) {  // with their count: no two lists run together
  const std::size_t count = numbers.size();
  hash.update(&count, sizeof count);
  hash.update(numbers.data(), numbers.size_bytes());
}

}  // namespace

Dataset::Dataset(StoredSamples samples)
    : samples_(std::make_unique<StoredSamples>(std::move(samples))) {}
Dataset::~Dataset() = default;
Dataset::Dataset(Dataset&&) noexcept = default;
Dataset& Dataset::operator=(Dataset&&) noexcept = default;

Dataset Dataset::open(const std::string& option, const std::string& source, bool is_training,
                      const DataOptions& options) {
  check_usage(options.context >= 1, "--context is ", options.context, ", it must be at least 1");
  StoredSamples samples = open_samples(option, source, is_training, options);
  const std::int64_t all = samples.num_samples();
  check(all > 0, option, " ", source, ": has ", samples.num_tokens(),
        " tokens; one sample with --context ", options.context, " takes ", options.context + 1,
        "; use a smaller --context or more data");
  const std::int64_t used = is_training || options.validation_samples == 0
                                ? all
                                : std::min(all, options.validation_samples);
  std::int64_t first = 0;  // sample with a target
  while (first < used && samples.row(first).num_targets() == 0) ++first;
  check(first < used, option, " ", source, ": ",
        [&] { return explain_no_target(samples, source, used); });
  return Dataset(std::move(samples));
}

Dataset Dataset::open_training(const DataOptions& options) {
  return open("--data", options.source, /*is_training=*/true, options);
}

Dataset Dataset::open_validation(const DataOptions& options) {
  const std::string& source = options.validation_source;
  if (!source.empty()) return open("--val-data", source, /*is_training=*/false, options);
  if (options.source == "corpus")
    return open("--data", options.source, /*is_training=*/false, options);
  return Dataset(StoredSamples{.name = "none", .context = options.context});
}

std::int64_t Dataset::num_samples() const {
  return samples_->num_samples();
}
std::int64_t Dataset::num_tokens() const {
  return samples_->num_tokens();
}
std::int64_t Dataset::num_documents() const {
  return std::ssize(samples_->text.starts);
}
std::int64_t Dataset::vocab_size() const {
  return samples_->vocab_size;
}
std::string Dataset::tokenizer() const {
  return samples_->tokenizer;
}
std::int64_t Dataset::bytes_read() const {
  return samples_->bytes_read;
}
std::int64_t Dataset::token_bytes() const {
  return samples_->visit([](auto tokens) { return static_cast<std::int64_t>(sizeof(tokens[0])); });
}

std::string Dataset::description() const {
  if (num_samples() == 0) return samples_->name;
  const std::string thing = samples_->rows == Rows::kPairs  ? "pair"
                            : samples_->rows == Rows::kChat ? "conversation"
                                                            : "document";
  std::string text = samples_->name + ": ";
  if (num_documents() > 0)
    text += concat(num_documents(), " ", thing, num_documents() == 1 ? ", " : "s, ");
  text += concat(num_tokens(), " tokens (", tokenizer(), ", vocabulary ", vocab_size(), "), ",
                 num_samples() * samples_->rows_per_sample());
  if (samples_->rows == Rows::kWindows) return text + concat(" windows of ", samples_->context);
  return text + concat(" rows of ", samples_->context, ", ", samples_->num_cut(), " ", thing,
                       "s cut to fit");
}

const std::set<std::string>& Dataset::ignored_members() const {
  return samples_->text.ignored;
}

std::string Dataset::content_hash() const {
  ByteHash hash;
  const std::int64_t cut[] = {static_cast<std::int64_t>(samples_->rows), samples_->context};
  add_numbers(hash, std::span(cut));
  hash.update(source_hash().data(), source_hash().size());
  return hash.digest();
}

const std::string& Dataset::source_hash() const {
  if (samples_->source_hash.empty()) {
    ByteHash hash;
    samples_->visit([&](auto stored) { add_numbers(hash, stored); });
    for (const auto& numbers : samples_->boundaries()) add_numbers(hash, numbers);
    samples_->source_hash = hash.digest();
  }
  return samples_->source_hash;
}

TargetText Dataset::text_of_targets(std::int64_t num_samples) const {
  const std::vector<std::uint32_t>& text_bytes = samples_->text_bytes;
  TargetText sum;
  if (text_bytes.empty()) return sum;
  samples_->visit([&](auto stored) {
    for (std::int64_t k = 0; k < num_samples; ++k) {
      for (std::int64_t row = 0; row < samples_->rows_per_sample(); ++row) {
        samples_->row(k, row).for_each([&](std::int64_t place, std::int64_t, bool is_target) {
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
  const std::int64_t context = samples_->context;
  const std::int64_t rows_per_sample = samples_->rows_per_sample();
  const std::vector<std::int64_t> shape = {
      static_cast<std::int64_t>(indices.size()) * rows_per_sample, context};
  Microbatch microbatch{at::empty(shape, at::kLong), at::empty(shape, at::kLong)};
  microbatch.samples.assign(indices.begin(), indices.end());
  for (const std::int64_t k : indices) {
    check(0 <= k && k < num_samples(), "sample ", k, " does not exist: ", samples_->name, " has ",
          num_samples());
    microbatch.num_documents += samples_->num_documents(k);
  }
  auto* tokens = microbatch.tokens.mutable_data_ptr<std::int64_t>();
  auto* targets = microbatch.targets.mutable_data_ptr<std::int64_t>();
  samples_->visit([&](auto stored) {
    for (std::int64_t row_of_sample = 0; row_of_sample < rows_per_sample; ++row_of_sample) {
      for (const std::int64_t k : indices) {
        const RowTokens row = samples_->row(k, row_of_sample);
        write_row(row, stored, context, samples_->padding, tokens, targets);
        tokens += context;
        targets += context;
        microbatch.num_targets += row.num_targets();
        samples_->bytes_read += row.length() * static_cast<std::int64_t>(sizeof(stored[0]));
      }
    }
  });
  return microbatch;
}

}  // namespace ladder
