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

// null, true, 1, "", [] or {}.
bool asks_for_nothing(const json& value) {
  return value.empty() || value == "" || value == true || value == 1;
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

std::optional<std::vector<JsonlObject>> JsonlObject::objects(const std::string& name) const {
  const auto member = object_.find(name);
  if (member == object_.end()) return std::nullopt;
  check(member->is_array(), place_, ": \"", name, "\" must be a list, but is of type ",
        member->type_name());
  std::vector<JsonlObject> objects;
  for (const json& entry : *member) {
    const std::string place = concat(place_, ": ", name, "[", objects.size(), "]");
    check(entry.is_object(), place, " must be an object, but is of type ", entry.type_name());
    objects.emplace_back(entry, place);
  }
  return objects;
}

bool JsonlObject::has(const std::string& name) const {
  return object_.contains(name);
}

std::optional<int> JsonlObject::weight() const {
  const auto member = object_.find("weight");
  if (member == object_.end() || member->is_null()) return std::nullopt;
  check(
      member->is_number() && (*member == 0 || *member == 1), place_, ": \"weight\" is ",
      [&] { return excerpt(member->dump()); },
      ", it must be 1, or 0 to keep the message out of the loss");
  return *member == 1 ? 1 : 0;
}

void JsonlObject::refuse(std::span<const char* const> names) const {
  for (const char* name : names) {
    const auto member = object_.find(name);
    check(member == object_.end() || asks_for_nothing(*member), place_, ": \"", name,
          "\" would change what is learned, but Ladder does not read it: remove it, or the line. "
          "What asks for nothing may stay (null, true, 1, or empty); \"weight\": 0 on a message "
          "keeps an answer out of the loss");
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

std::string document_of(const JsonlObject& object) {
  object.refuse(kWeights);
  std::string document;
  bool has_text = false;
  for (const char* name : {"text", "context", "question", "answer"}) {
    const auto text = object.text(name);
    if (!text) continue;
    if (has_text) document += '\n';
    document += *text;
    has_text = true;
  }
  check(has_text, object.place(),
        ": has none of \"text\", \"context\", \"question\" and \"answer\"",
        object.has("messages") ? "; its \"messages\" are a conversation: give --rows chat" : "");
  return document;
}

}  // namespace

void append_document(std::string_view document, Tokenizer& tokenizer, TokenizedText& text) {
  text.starts.push_back(text.tokens.size());
  tokenizer.encode(document, text.tokens);
  text.tokens.push_back(tokenizer.end_of_text());
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
                              append_document(document_of(object), tokenizer, text);
                            });
}

}  // namespace ladder
