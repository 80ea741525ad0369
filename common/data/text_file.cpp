#include "common/data/text_file.hpp"

#include "common/core/check.hpp"
#include "common/data/jsonl_file.hpp"
#include "common/data/mapped_file.hpp"

namespace ladder {
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

void TokenizedText::append(std::string_view document, Tokenizer& tokenizer) {
  document_starts.push_back(tokens.size());
  tokenizer.encode(document, tokens);
  tokens.push_back(tokenizer.end_of_text());
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
  text.append(file.bytes(), tokenizer);
  return text;
}

TokenizedText read_jsonl(const std::string& path, Tokenizer& tokenizer) {
  TokenizedText text{TokenList(tokenizer.vocab_size())};
  read_jsonl_objects(
      path, [&](const JsonlObject& object) { text.append(document_of(object), tokenizer); });
  check(!text.document_starts.empty(), path, ": has no documents: no line is a JSON object");
  return text;
}

}  // namespace ladder
