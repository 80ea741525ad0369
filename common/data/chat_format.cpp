#include "common/data/chat_format.hpp"

#include <nlohmann/json.hpp>
#include <optional>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/data/mapped_file.hpp"

namespace ladder {

namespace fs = std::filesystem;

namespace {

constexpr const char* kSystemMessage =
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face";

constexpr const char* kTemplate =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
    "Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}";
constexpr const char* kPromptOfTemplate =
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

// In a string of a template, a line break may be written as \n.
std::string with_line_breaks(std::string text) {
  for (std::size_t at = 0; (at = text.find("\\n", at)) != std::string::npos; ++at) {
    text.erase(at, 1);
    text[at] = '\n';
  }
  return text;
}

void check_is_ours(const std::string& text, const fs::path& path) {
  const std::string found = with_line_breaks(text);
  const bool is_ours = found == kTemplate || found == chat_template();
  constexpr std::size_t kShown = 80;
  check(is_ours, path.string(),
        ": --rows chat writes SmolLM2's chat template, but this one begins ", "with ",
        text.substr(0, kShown));
}

}  // namespace

ChatFormat::ChatFormat(const Tokenizer& tokenizer) {
  const auto special = [&](const char* name) {
    const auto token = tokenizer.special(name);
    check(
        token.has_value(), "--rows chat needs a tokenizer with the special token ", name, ", and '",
        [&] { return tokenizer.name(); },
        "' has none; give SmolLM2's, for example --tokenizer FOLDER with its tokenizer.json");
    return *token;
  };
  start_ = special("<|im_start|>");
  end_ = special(kEndOfMessage);
}

void ChatFormat::append_message(const ChatMessage& message, Tokenizer& tokenizer, TokenList& tokens,
                                std::vector<std::int64_t>& ends) const {
  tokens.push_back(start_);
  const std::string header = message.role + '\n';
  std::int64_t place = tokens.size();
  tokenizer.encode(header + message.content, tokens);
  const auto text_size = [&] { return tokenizer.text_of(tokens[place]).size(); };
  // A token that has a byte of the content is content, and so is a special one, which has none.
  std::size_t num_bytes = 0;  // before the token at `place`
  while (place < tokens.size() && num_bytes < header.size() &&
         num_bytes + text_size() <= header.size()) {
    num_bytes += text_size();
    ++place;
  }
  tokens.push_back(end_);
  if (message.role == "assistant" && message.is_learned) {
    ends.push_back(place);
    ends.push_back(tokens.size());
  }
  tokenizer.encode("\n", tokens);
}

void ChatFormat::append(const std::vector<ChatMessage>& messages, Tokenizer& tokenizer,
                        TokenList& tokens, std::vector<std::int64_t>& ends) const {
  if (messages.front().role != "system")
    append_message({"system", kSystemMessage}, tokenizer, tokens, ends);
  for (const ChatMessage& message : messages) append_message(message, tokenizer, tokens, ends);
}

TokenList ChatFormat::prompt(const std::string& user_message, Tokenizer& tokenizer) const {
  TokenList tokens(tokenizer.vocab_size());
  std::vector<std::int64_t> ends;
  append({{"user", user_message}}, tokenizer, tokens, ends);
  tokens.push_back(start_);
  tokenizer.encode("assistant\n", tokens);
  return tokens;
}

std::string chat_template() {
  return concat(kTemplate, kPromptOfTemplate);
}

void check_chat_template(const fs::path& tokenizer) {
  const fs::path folder = fs::is_directory(tokenizer) ? tokenizer : tokenizer.parent_path();
  const fs::path file = folder / "chat_template.jinja";
  if (fs::exists(file)) return check_is_ours(std::string(MappedFile(file.string()).bytes()), file);
  const fs::path config = folder / "tokenizer_config.json";
  if (!fs::exists(config)) return;
  const auto object = parse_sorted_json(MappedFile(config.string()).bytes(), config.string());
  const auto found = object.find("chat_template");
  if (found == object.end() || found->is_null()) return;
  check(found->is_string(), config.string(), ": \"chat_template\" is of type ", found->type_name(),
        "; --rows chat writes SmolLM2's, a single string");
  check_is_ours(found->get<std::string>(), config);
}

}  // namespace ladder
