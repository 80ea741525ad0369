#include "common/data/text_file.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/data/mapped_file.hpp"

namespace ladder {
namespace {

using nlohmann::json;

// Calls visit(line, its file:line) with each line that is not blank.
template <class Visit>
void for_each_line(const std::string& path, const Visit& visit) {
  const MappedFile file(path);
  std::string_view rest = file.bytes();
  for (std::int64_t number = 1; !rest.empty(); ++number) {
    const std::size_t length = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, length);
    rest.remove_prefix(std::min(length + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") != std::string_view::npos)
      visit(line, concat(path, ":", number));
  }
}

// A name in any of the usual spellings, such as lossWeight or Loss-Weight, as loss_weight.
std::string snake_case(const std::string& name) {
  std::string snake;
  bool was_lower = false;
  for (const char c : name) {
    const bool is_upper = 'A' <= c && c <= 'Z', is_lower = 'a' <= c && c <= 'z';
    if (is_upper && was_lower) snake += '_';
    snake += is_upper ? static_cast<char>(c - 'A' + 'a') : is_lower ? c : '_';
    was_lower = is_lower;
  }
  return snake;
}

bool is_empty(const json& value) {  // null, "", [] or {}
  return value.empty() || value == "";
}

// Whether a member's name says how much of something is learned. A mask of 1 may mean that all
// counts, or that nothing does.
enum class Counting { kNo, kMore, kMask };

Counting counting_of(const std::string& snake) {
  const auto has = [&](std::initializer_list<const char*> any) {
    return std::ranges::any_of(any, [words = "_" + snake + "_"](const std::string& word) {
      return words.find("_" + word + "_") != std::string::npos;
    });
  };
  if (has({"weight", "weights", "loss", "losses", "train", "trainable", "training"}))
    return Counting::kMore;
  return has({"mask", "masks", "masked"}) ? Counting::kMask : Counting::kNo;
}

// Parses the object on a line; `place` is its file:line.
json parse_line(std::string_view line, const std::string& place) {
  try {
    json object = parse_sorted_json(line, place);
    check(object.is_object(), place, ": expected a JSON object, but this is of type ",
          object.type_name());
    return object;
  } catch (const CheckError& error) {  // `place` already says which line
    constexpr std::string_view kLine = "not valid JSON: line 1, ";
    std::string problem = error.what();
    const std::size_t found = problem.find(kLine, place.size());
    if (found == place.size() + 2) problem.erase(found + kLine.size() - 8, 8);
    throw CheckError(problem);
  }
}

}  // namespace

std::optional<std::string> JsonlObject::text(const std::string& name) const {
  const auto member = object_.find(name);
  if (member == object_.end()) return std::nullopt;
  check(member->is_string(), place_, ": \"", name, "\" must be a string, but is of type ",
        member->type_name());
  return member->get<std::string>();
}

std::string JsonlObject::required(const std::string& name, const char* hint) const {
  const std::optional<std::string> found = text(name);
  check(found.has_value(), place_, ": has no \"", name, "\"", hint);
  return *found;
}

bool JsonlObject::has(const std::string& name) const {
  return object_.contains(name);
}

void JsonlObject::account_for(std::span<const char* const> read,
                              std::span<const char* const> learned_by,
                              std::set<std::string>& ignored) const {
  constexpr std::size_t kMostIgnored = 100;  // a hostile file may have another name in each line
  for (const auto& [name, value] : object_.items()) {
    if (std::ranges::find(read, name) != read.end() || is_empty(value)) continue;
    const std::string snake = snake_case(name);
    const Counting counting = counting_of(snake);
    if (counting == Counting::kMore && (value == true || value == 1)) continue;
    const bool changes =
        counting != Counting::kNo || std::ranges::find(learned_by, snake) != learned_by.end();
    check(
        !changes, place_, ": \"", [&] { return excerpt(name); },
        "\" would change what is learned, but Ladder does not read it: remove it, or the line. "
        "What is null or empty may stay, and so may a weight of 1 or true");
    if (ignored.size() < kMostIgnored) ignored.insert(excerpt(name));
  }
}

TokenizedText read_jsonl_objects(
    const std::string& path, const Tokenizer& tokenizer, const char* things,
    const std::function<void(const JsonlObject& object, TokenizedText& text)>& append) {
  TokenizedText text{TokenList(tokenizer.vocab_size())};
  for_each_line(path, [&](std::string_view line, const std::string& place) {
    append(JsonlObject(parse_line(line, place), place), text);
  });
  check(!text.starts.empty(), path, ": has no ", things, ": no line is a JSON object");
  return text;
}

std::string place_of_object(const std::string& path, std::int64_t number) {
  std::string found;
  for_each_line(path, [&](std::string_view, const std::string& place) {
    if (number-- == 0) found = place;
  });
  return found;
}

namespace {

std::string document_of(const JsonlObject& object, std::set<std::string>& ignored) {
  constexpr const char* kRead[] = {"text", "context", "question", "answer"};
  object.account_for(kRead, {}, ignored);
  std::string document;
  bool has_text = false;
  for (const char* name : kRead) {
    const auto text = object.text(name);
    if (!text) continue;
    if (has_text) document += '\n';
    document += *text;
    has_text = true;
  }
  check(has_text, object.place(),
        ": has none of \"text\", \"context\", \"question\" and \"answer\"",
        object.has("messages") ? "; its \"messages\" are a conversation, which ./ladder encode "
                                 "--chat makes a row for --rows chat"
                               : "");
  return document;
}

}  // namespace

void append_document(std::string_view document, Tokenizer& tokenizer, TokenizedText& text) {
  text.starts.push_back(text.tokens.size());
  append_text(document, DocumentPart::kWhole, tokenizer, text.tokens);
}

void append_text(std::string_view text, DocumentPart part, Tokenizer& tokenizer,
                 TokenList& tokens) {
  const auto begin = part == DocumentPart::kEnd ? std::nullopt : tokenizer.begin_of_text();
  if (begin) tokens.push_back(*begin);
  const std::int64_t first = tokens.size();
  tokenizer.encode(text, tokens);
  if (begin && tokens.size() > first && tokens[first] == *begin) tokens.erase(first);
  if (part == DocumentPart::kStart) return;
  const bool has_end =
      tokens.size() > first && tokens[tokens.size() - 1] == tokenizer.end_of_text();
  if (!has_end) tokens.push_back(tokenizer.end_of_text());
}

TokenList start_of_document(std::string_view text, Tokenizer& tokenizer) {
  TokenList tokens(tokenizer.vocab_size());
  if (!tokenizer.begin_of_text()) tokens.push_back(tokenizer.end_of_text());
  append_text(text, DocumentPart::kStart, tokenizer, tokens);
  return tokens;
}

TokenizedText read_txt(const std::string& path, Tokenizer& tokenizer) {
  const MappedFile file(path);
  check(!file.bytes().empty(), path, ": is empty; it has no text to train on");
  const std::string_view mark = file.bytes().substr(0, 2);
  check(
      mark != "\xff\xfe" && mark != "\xfe\xff", path,
      ": is text in UTF-16, every other byte of which says nothing; make it UTF-8: iconv -f UTF-16 "
      "-t UTF-8 FILE");
  TokenizedText text{TokenList(tokenizer.vocab_size())};
  append_document(file.bytes(), tokenizer, text);
  return text;
}

TokenizedText read_jsonl(const std::string& path, Tokenizer& tokenizer) {
  return read_jsonl_objects(path, tokenizer, "documents",
                            [&](const JsonlObject& object, TokenizedText& text) {
                              append_document(document_of(object, text.ignored), tokenizer, text);
                            });
}

}  // namespace ladder
