#include "common/data/bpe/bpe_tokenizer.hpp"

#include <algorithm>

#include "common/core/byte_hash.hpp"
#include "common/core/check.hpp"
#include "common/data/bpe/byte_alphabet.hpp"
#include "common/data/bpe/normal_form.hpp"

namespace ladder {
namespace {

// The tokens that are looked for first, as they are written; or those that are looked for next, in
// the normal form of the text.
std::vector<AddedToken> tokens_of_search(const BpeDescription& description, bool is_next) {
  std::vector<AddedToken> tokens = description.added;
  std::erase_if(tokens, [=](const AddedToken& t) { return t.is_normalized != is_next; });
  if (!is_next || !description.is_nfc) return tokens;
  std::unordered_map<std::string, std::uint32_t> ids;
  for (AddedToken& token : tokens) {
    token.content = normal_form_c(token.content);
    const auto [other, is_new] = ids.emplace(token.content, token.id);
    check(is_new, description.file, ": the added tokens ", other->second, " and ", token.id,
          " are both \"", token.content, "\" in normal form C");
  }
  return tokens;
}

// What each token stands for, by its id.
std::vector<std::string> texts_of(const BpeDescription& description) {
  std::vector<std::string> texts(static_cast<std::size_t>(description.vocab_size));
  for (const auto& [letters, id] : description.vocabulary)
    texts[id] = bytes_of_letters(letters).value_or(letters);
  for (const AddedToken& token : description.added)
    texts[token.id] =
        token.is_special ? "" : bytes_of_letters(token.content).value_or(token.content);
  return texts;
}

std::uint32_t id_of(const std::string& content, const BpeDescription& description) {
  const auto added = std::ranges::find(description.added, content, &AddedToken::content);
  return added != description.added.end() ? added->id : description.vocabulary.at(content);
}

// The hash of all that decides about ids.
std::string hash_of(const BpeDescription& description) {
  ByteHash hash;
  const auto add = [&](const std::string& text) {
    const std::size_t count = text.size();
    hash.update(&count, sizeof count);
    hash.update(text.data(), count);
  };
  std::vector<const std::string*> letters(static_cast<std::size_t>(description.vocab_size));
  for (const auto& [text, id] : description.vocabulary) letters[id] = &text;
  for (const std::string* text : letters) add(text == nullptr ? "" : *text);
  for (const auto& [left, right] : description.merges) add(left + " " + right);
  for (const AddedToken& token : description.added)
    add(concat(token.id, " ", token.is_special, token.is_normalized, " ", token.content));
  for (const PreTokenizerStage& stage : description.stages) {
    add(concat(stage.adds_prefix_space, " ", stage.pattern));
    if (stage.removed == Removed::kMatches) add("without matches");
    if (stage.removed == Removed::kBetweenMatches) add("only matches");
  }
  add(concat(description.ignores_merges, " ", description.end_of_text));
  if (description.is_nfc) add("NFC");
  if (!description.begin_of_text.empty()) add("begins with " + description.begin_of_text);
  return hash.digest();
}

}  // namespace

BpeTokenizer::BpeTokenizer(const std::filesystem::path& path)
    : BpeTokenizer(read_bpe_files(path)) {}

BpeTokenizer::BpeTokenizer(const BpeDescription& description)
    : model_(description),
      is_nfc_(description.is_nfc),
      added_first_(tokens_of_search(description, /*is_next=*/false)),
      added_next_(tokens_of_search(description, /*is_next=*/true)),
      texts_(texts_of(description)),
      end_of_text_(id_of(description.end_of_text, description)),
      padding_(id_of(description.padding, description)),
      name_("bpe " + hash_of(description)) {
  texts_[end_of_text_].clear();  // an eos_token need not be a special one
  if (!description.begin_of_text.empty()) {
    begin_of_text_ = id_of(description.begin_of_text, description);
    texts_[*begin_of_text_].clear();
  }
  for (const PreTokenizerStage& stage : description.stages) {
    std::optional<SplitPattern> pattern;
    try {
      if (!stage.pattern.empty()) pattern.emplace(stage.pattern);
    } catch (const CheckError& error) {
      throw CheckError(concat(description.file, ": ", error.what()));
    }
    stages_.push_back({stage.adds_prefix_space, std::move(pattern), stage.removed});
  }
}

void BpeTokenizer::encode(std::string_view text, TokenList& tokens) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 30;  // the engine counts in int
  check(text.size() <= kMostBytes, "a text of ", text.size(),
        " bytes is longer than a GiB; cut it ",
        "into documents (.jsonl), or encode it once (.bin)");
  std::string buffer;
  added_first_.split(
      well_formed_utf8(text, buffer), [&](std::string_view part) { encode_between(part, tokens); },
      [&](std::uint32_t token, std::string_view) { tokens.push_back(token); });
}

void BpeTokenizer::encode_between(std::string_view source, TokenList& tokens) {
  const std::string form = is_nfc_ ? normal_form_c(source) : std::string();
  added_next_.split(
      is_nfc_ ? form : source, [&](std::string_view part) { encode_piece(part, 0, tokens); },
      [&](std::uint32_t token, std::string_view) { tokens.push_back(token); });
}

void BpeTokenizer::encode_piece(std::string_view piece, std::size_t stage, TokenList& tokens) {
  if (stage == stages_.size()) return model_.encode(piece, tokens);
  Stage& here = stages_[stage];
  std::string with_space;
  if (here.adds_prefix_space && !piece.starts_with(' '))
    piece = with_space.assign(1, ' ').append(piece);
  const auto next = [&](std::string_view part, bool is_match) {
    if (here.removed == (is_match ? Removed::kMatches : Removed::kBetweenMatches)) return;
    encode_piece(part, stage + 1, tokens);
  };
  if (here.pattern) {
    here.pattern->split(piece, next);
  } else {
    next(piece, /*is_match=*/true);
  }
}

}  // namespace ladder
