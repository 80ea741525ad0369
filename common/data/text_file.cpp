#include "common/data/text_file.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "common/core/check.hpp"
#include "common/data/mapped_file.hpp"
#include "common/data/tokenizer.hpp"

namespace ladder {
namespace {

using nlohmann::json;

// Parses the object on a line; `place` is its file:line.
json parse_line(std::string_view line, const std::string& place) {
  std::set<std::string> names;
  const auto refuse_duplicates = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event != json::parse_event_t::key || depth != 1) return true;
    // Of two members with the same name, the library silently keeps the last.
    check(
        names.insert(parsed.get<std::string>()).second, place, ": member ",
        [&] { return parsed.dump(); }, " appears twice");
    return true;
  };
  try {
    json object = json::parse(line.begin(), line.end(), refuse_duplicates);
    check(object.is_object(), place, ": expected a JSON object, but this is of type ",
          object.type_name());
    return object;
  } catch (const json::exception& error) {
    throw CheckError(concat(place, ": not valid JSON: ", error.what()));
  }
}

std::string document_of(std::string_view line, const std::string& place) {
  const json object = parse_line(line, place);
  std::string document;
  bool has_text = false;
  for (const char* name : {"context", "question", "answer"}) {
    const auto member = object.find(name);
    if (member == object.end()) continue;
    check(member->is_string(), place, ": \"", name, "\" must be a string, but is of type ",
          member->type_name());
    if (has_text) document += '\n';
    document += member->get_ref<const std::string&>();
    has_text = true;
  }
  check(has_text, place, ": has none of \"context\", \"question\" and \"answer\"");
  return document;
}

}  // namespace

void TokenizedText::append(std::string_view document) {
  document_starts.push_back(static_cast<std::int64_t>(tokens.size()));
  for (const char byte : document) tokens.push_back(static_cast<unsigned char>(byte));
  tokens.push_back(ByteTokenizer::kEndOfText);
}

TokenizedText read_txt(const std::string& path) {
  const MappedFile file(path);
  check(!file.bytes().empty(), path, ": is empty; it has no text to train on");
  TokenizedText text;
  text.tokens.reserve(file.bytes().size() + 1);
  text.append(file.bytes());
  return text;
}

TokenizedText read_jsonl(const std::string& path) {
  const MappedFile file(path);
  TokenizedText text;
  std::string_view rest = file.bytes();
  for (std::int64_t number = 1; !rest.empty(); ++number) {
    const std::size_t length = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, length);
    rest.remove_prefix(std::min(length + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    text.append(document_of(line, concat(path, ":", number)));
  }
  check(!text.document_starts.empty(), path, ": has no documents: no line is a JSON object");
  return text;
}

}  // namespace ladder
