// SmolLM2's chat template, which is ChatML with a system message of its own:
//
//   <|im_start|>system
//   You are a helpful …<|im_end|>
//   <|im_start|>user
//   Hello<|im_end|>
//   <|im_start|>assistant
//   Hi<|im_end|>
//
// The default system message opens a conversation that does not begin with one.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/data/tokenizer.hpp"

namespace ladder {

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
  bool is_learned = true;  // if it is the assistant's
};

inline constexpr const char* kEndOfMessage = "<|im_end|>";

class ChatFormat {
 public:
  // Throws CheckError if the tokenizer has no special tokens <|im_start|> and <|im_end|>.
  explicit ChatFormat(const Tokenizer& tokenizer);

  // Appends the conversation's tokens, which are those of transformers' apply_chat_template(), and
  // to `ends` where each range of them ends: first one that is not learned, then one that is, and
  // so on. What is learned of the assistant's are the tokens of what it says, up to its <|im_end|>;
  // the newline after that is not. A token that comes from a byte of what it says belongs to it.
  // There is at least one message.
  void append(const std::vector<ChatMessage>& messages, Tokenizer& tokenizer, TokenList& tokens,
              std::vector<std::int64_t>& ends) const;
  // The tokens after which the assistant answers this user.
  TokenList prompt(const std::string& user_message, Tokenizer& tokenizer) const;
  std::uint32_t end_of_message() const { return end_; }

 private:
  std::uint32_t end_;
};

// The template as transformers reads it, from chat_template.jinja.
std::string chat_template();

// Throws CheckError with the file and the first characters of the template if there is another one
// with this tokenizer, a folder or a file in it: in tokenizer_config.json or chat_template.jinja.
// None is all right.
void check_chat_template(const std::filesystem::path& tokenizer);

}  // namespace ladder
