// Text files as token ids: .txt, and .jsonl, which has one JSON object per line. Every document is
// followed by an end-of-text token, and preceded by the tokenizer's begin_of_text(), if it has one.
// Blank lines of a .jsonl file are skipped, and messages begin with file:line.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/data/row_tokens.hpp"

namespace ladder {

// Members that other programs learn by, of a line with a prompt: what a model is shown
// besides these, and what says whether an answer is a good one.
inline constexpr const char* kLearnedBy[] = {"system",
                                             "system_prompt",
                                             "tools",
                                             "functions",
                                             "function_call",
                                             "image",
                                             "images",
                                             "audio",
                                             "audios",
                                             "video",
                                             "videos",
                                             "documents",
                                             "history",
                                             "condition",
                                             "chat_template",
                                             "chat_template_kwargs",
                                             "enable_thinking",
                                             "thinking",
                                             "reasoning",
                                             "reasoning_content",
                                             "reasoning_effort",
                                             "label",
                                             "labels",
                                             "kto_tag",
                                             "margin",
                                             "chosen",
                                             "rejected",
                                             "rejected_messages",
                                             "rejected_response",
                                             "negative_messages"};

// A line's object, valid only during the visit.
class JsonlObject {
 public:
  JsonlObject(const nlohmann::json& object, std::string place)
      : object_(object), place_(std::move(place)) {}

  // The member's text, or nothing if there is no such member. Throws CheckError if it is not a
  // string.
  std::optional<std::string> text(const std::string& name) const;
  // Like text(), for a member that must be there; `hint` follows in the message if it is not.
  std::string required(const std::string& name, const char* hint = "") const;
  bool has(const std::string& name) const;
  // Looks at the members that are not in `read`: throws CheckError if one would change what is
  // learned, if it were read, and adds the names of the others to `ignored`. What would change it
  // is one of `learned_by` in any spelling (toolCalls), unless it is null or empty; and what by its
  // name says how much counts (a word of it is "weight", "loss", "mask", "train", …), unless it
  // asks for nothing, which is also true or 1 if it is no mask.
  void account_for(std::span<const char* const> read, std::span<const char* const> learned_by,
                   std::set<std::string>& ignored) const;
  const std::string& place() const { return place_; }  // file:line

 private:
  const nlohmann::json& object_;
  std::string place_;
};

// Calls append(object, text) with each object, in the order of the lines, and returns the text.
// Throws CheckError if the file cannot be read, has none of these `things`, or a line is malformed
// or has a member twice.
TokenizedText read_jsonl_objects(
    const std::string& path, const Tokenizer& tokenizer, const char* things,
    const std::function<void(const JsonlObject& object, TokenizedText& text)>& append);

// The file:line of the object with this number, from 0 on, in a file that has been read.
std::string place_of_object(const std::string& path, std::int64_t number);

enum class DocumentPart { kWhole, kStart, kEnd };

// Appends the tokens of a document, or of a part of one: what begins a document before its start,
// and the end of text behind its end. A token that is written there already is not doubled.
void append_text(std::string_view text, DocumentPart part, Tokenizer& tokenizer, TokenList& tokens);

// What a model is shown that is to continue this start of a document. Where nothing begins a
// document, it follows the end of another one.
TokenList start_of_document(std::string_view text, Tokenizer& tokenizer);

// `tokenizer` is that of the documents before.
void append_document(std::string_view document, Tokenizer& tokenizer, TokenizedText& text);

// Reads a .txt file as one document, whatever bytes it contains. Throws CheckError if it is empty,
// or begins with the mark of UTF-16.
TokenizedText read_txt(const std::string& path, Tokenizer& tokenizer);

// Reads a .jsonl file, which has one JSON object per line, with some of the strings `text`,
// `context`, `question` and `answer`. Those present, in this order and joined by newlines, are a
// document. Other members are accounted for; blank lines are skipped. Throws CheckError with
// file:line if a line is malformed, has none of the four, has a member twice, or has one of them not
// as a string.
TokenizedText read_jsonl(const std::string& path, Tokenizer& tokenizer);

}  // namespace ladder
