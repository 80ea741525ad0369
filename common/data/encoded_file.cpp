#include "common/data/encoded_file.hpp"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "common/core/byte_hash.hpp"
#include "common/core/check.hpp"
#include "common/core/json.hpp"

namespace ladder {
namespace {

constexpr std::int64_t kVersion = 1;

// Takes the arrays behind the header, one after the other.
class Arrays {
 public:
  Arrays(std::string_view bytes, std::size_t begin) : bytes_(bytes), next_(begin) {}

  std::int64_t place() const { return static_cast<std::int64_t>(next_); }
  std::string_view take(std::int64_t count, std::int64_t width = 1) {
    const auto size = static_cast<std::size_t>(count * width), begin = next_;
    next_ += size;
    return begin > bytes_.size() ? std::string_view() : bytes_.substr(begin, size);
  }
  // Throws CheckError unless all bytes have been taken, and no others.
  void check_end(const std::string& path) const {
    check(next_ == bytes_.size(), path, ": its header promises ", next_, " bytes, but it has ",
          bytes_.size(), "; it is truncated or damaged");
  }

 private:
  std::string_view bytes_;
  std::size_t next_;
};

template <class Number>
std::span<const Number> numbers_in(std::string_view bytes) {  // at a multiple of their width
  return {reinterpret_cast<const Number*>(bytes.data()), bytes.size() / sizeof(Number)};
}

// A header's member, a token id.
std::uint32_t token_of_member(const Json& object, const char* name, std::int64_t vocab_size,
                              const std::string& path) {
  const std::int64_t token = count_in(object, name, path);
  check(token < vocab_size, path, ": damaged: \"", name, "\" is ", token,
        ", beyond the vocabulary of ", vocab_size);
  return static_cast<std::uint32_t>(token);
}

Rows rows_in(const Json& header, const std::string& path) {
  const Json rows = header.value("rows", Json());
  if (rows == "documents") return Rows::kDocuments;
  if (rows == "chat") return Rows::kChat;
  check(rows == "pairs", path, ": damaged: \"rows\" is ", excerpt(to_text(rows)));
  return Rows::kPairs;
}

void check_is_plain(const std::string& name, const std::string& path) {  // it becomes a file
  const bool is_plain = !name.empty() && name[0] != '.' && std::ranges::all_of(name, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  });
  check(is_plain, path, ": damaged: \"files\" has the name ", excerpt(name));
}

}  // namespace

struct EncodedFile::Vocabulary {
  std::string name, path;
  std::optional<std::uint32_t> begin = {};
  std::uint32_t end = 0, padding = 0;
  std::int64_t size = 0;
  std::vector<std::size_t> text_ends = {};  // of each token in `text`
  std::string text = {};
  std::optional<std::string> sample = {};
  std::vector<std::uint32_t> sample_tokens = {};
};

class EncodedFile::OpenTokenizer final : public Tokenizer {
 public:
  explicit OpenTokenizer(std::shared_ptr<const Vocabulary> vocabulary)
      : vocabulary_(std::move(vocabulary)) {}

  using Tokenizer::encode;
  void encode(std::string_view text, TokenList& tokens) override {
    check(vocabulary_->sample == text, vocabulary_->path, ": has the tokens of ",
          vocabulary_->sample ? concat("the sample '", *vocabulary_->sample, "'")
                              : "what it was made of",
          ", and nothing here makes tokens of other texts, as its tokenizer did: give other data, "
          "or a --sample, to ./ladder encode as well");
    for (const std::uint32_t token : vocabulary_->sample_tokens) tokens.push_back(token);
  }
  std::string_view text_of(std::uint32_t token) const override {
    const std::size_t begin = token == 0 ? 0 : vocabulary_->text_ends[token - 1];
    return std::string_view(vocabulary_->text).substr(begin, vocabulary_->text_ends[token] - begin);
  }
  std::int64_t vocab_size() const override { return vocabulary_->size; }
  std::uint32_t end_of_text() const override { return vocabulary_->end; }
  std::optional<std::uint32_t> begin_of_text() const override { return vocabulary_->begin; }
  std::uint32_t padding() const override { return vocabulary_->padding; }
  std::string name() const override { return vocabulary_->name; }

 private:
  std::shared_ptr<const Vocabulary> vocabulary_;
};

std::string name_of_encoded(const std::map<std::string, std::string_view>& files) {
  ByteHash hash;
  for (const auto& [name, bytes] : files) {
    const std::string head = concat(name, '\n', bytes.size(), '\n');
    hash.update(head.data(), head.size());
    hash.update(bytes.data(), bytes.size());
  }
  return "encoded " + hash.digest();
}

bool is_of_encoded(const std::string& name) {
  return name.starts_with("encoded ");
}

EncodedFile::EncodedFile(const std::string& path) : file_(path) {
  const std::string_view bytes = file_.bytes();
  const std::size_t line = std::min(bytes.find('\n'), bytes.size() - 1) + 1;
  check(line % 8 == 0, path, ": damaged: its first line takes ", line,
        " bytes, which is no multiple of 8");
  const Json header = parse_json(bytes.substr(0, line), path);
  const auto count = [&](const char* name) { return count_in(header, name, path); };
  check(count("ladder_tokens") == kVersion, path, ": is of version ", count("ladder_tokens"),
        " of the format, and only version ", kVersion, " can be read: encode it anew");
  rows_ = rows_in(header, path);
  num_tokens_ = count("num_tokens");
  token_bytes_ = count("token_bytes");
  const auto vocabulary = std::make_shared<Vocabulary>();
  vocabulary->path = path;
  vocabulary->size = count("vocab_size");
  constexpr std::int64_t kMostVocabulary = std::int64_t{1} << 31;
  check((token_bytes_ == 2 && vocabulary->size <= 65'536) ||
            (token_bytes_ == 4 && vocabulary->size <= kMostVocabulary),
        path, ": damaged: ids of ", token_bytes_, " bytes, and a vocabulary of ", vocabulary->size);

  Arrays arrays(bytes, line);
  starts_ = numbers_in<std::int64_t>(arrays.take(count("num_starts"), 8));
  const auto lengths = numbers_in<std::uint32_t>(arrays.take(vocabulary->size, 4));
  first_token_byte_ = arrays.place();
  arrays.take(num_tokens_, token_bytes_);
  if (rows_ == Rows::kChat) mask_ = arrays.take(num_tokens_);
  vocabulary->text = arrays.take(count("text_bytes"));
  const Json sizes = header.value("files", Json::object());
  check(sizes.is_object(), path, ": damaged: \"files\" is no object");
  for (const auto& [name, size] : sizes.items()) {
    check_is_plain(name, path);
    files_[name] = arrays.take(count_in(sizes, name.c_str(), path));
  }
  arrays.check_end(path);

  const std::int64_t per_thing = rows_ == Rows::kPairs ? 3 : 1;
  bool is_in_order = !starts_.empty() && std::ssize(starts_) % per_thing == 0 &&
                     starts_.front() == 0 && starts_.back() < num_tokens_;
  is_in_order = is_in_order && std::ranges::is_sorted(starts_, std::less_equal<>());
  check(is_in_order, path, ": damaged: what it consists of does not begin at ascending places");
  check(std::ranges::all_of(mask_, [](char c) { return c == 0 || c == 1; }), path,
        ": damaged: the mask has other values than 0 and 1");
  std::size_t text_end = 0;
  for (const std::uint32_t length : lengths) vocabulary->text_ends.push_back(text_end += length);
  check(text_end == vocabulary->text.size(), path, ": damaged: the texts of its tokens take ",
        text_end, " bytes, not ", vocabulary->text.size());

  const auto token = [&](const char* name) {
    return token_of_member(header, name, vocabulary->size, path);
  };
  if (!header.value("begin", Json()).is_null()) vocabulary->begin = token("begin");
  vocabulary->end = token("end");
  vocabulary->padding = token("padding");
  const Json sample = header.value("sample", Json());
  if (sample.is_object() && sample.value("text", Json()).is_string() &&
      sample.value("tokens", Json()).is_array()) {
    vocabulary->sample = sample["text"];
    for (const Json& each : sample["tokens"])
      vocabulary->sample_tokens.push_back(
          token_of_member(Json{{"token", each}}, "token", vocabulary->size, path));
  }
  vocabulary->name = name_of_encoded(files_);
  vocabulary_ = vocabulary;
}

TokenizedText EncodedFile::boundaries() const {
  TokenizedText text;
  text.end = num_tokens_;
  const auto end_of = [&](std::size_t i) {
    return i + 1 < starts_.size() ? starts_[i + 1] : num_tokens_;
  };
  const std::size_t per_thing = rows_ == Rows::kPairs ? 3 : 1;
  for (std::size_t i = 0; i < starts_.size(); ++i) {
    if (i % per_thing == 0) text.starts.push_back(starts_[i]);
    if (rows_ == Rows::kPairs) text.part_ends.push_back(end_of(i));
    if (rows_ != Rows::kChat) continue;
    text.first_parts.push_back(std::ssize(text.part_ends));
    bool is_learned = false;
    for (std::int64_t place = starts_[i]; place < end_of(i); ++place) {
      if ((mask_[static_cast<std::size_t>(place)] == 1) == is_learned) continue;
      text.part_ends.push_back(place);
      is_learned = !is_learned;
    }
    if (is_learned) text.part_ends.push_back(end_of(i));
  }
  return text;
}

std::unique_ptr<Tokenizer> EncodedFile::open() const {
  return std::make_unique<OpenTokenizer>(vocabulary_);
}

}  // namespace ladder
