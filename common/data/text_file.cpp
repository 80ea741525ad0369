#include "common/data/text_file.hpp"

#include "common/core/check.hpp"
#include "common/data/jsonl_file.hpp"
#include "common/data/mapped_file.hpp"
#include "common/data/tokenizer.hpp"

namespace ladder {
namespace {

std::string document_of(const JsonlObject& object) {
  std::string document;
  bool has_text = false;
  for (const char* name : {"context", "question", "answer"}) {
    const auto text = object.text(name);
    if (!text) continue;
    if (has_text) document += '\n';
    document += *text;
    has_text = true;
  }
  check(has_text, object.place(), ": has none of \"context\", \"question\" and \"answer\"");
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
  TokenizedText text;
  read_jsonl_objects(path, [&](const JsonlObject& object) { text.append(document_of(object)); });
  check(!text.document_starts.empty(), path, ": has no documents: no line is a JSON object");
  return text;
}

}  // namespace ladder
