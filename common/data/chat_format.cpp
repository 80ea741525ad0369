#include "common/data/chat_format.hpp"

#include <nlohmann/json.hpp>
#include <optional>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/data/mapped_file.hpp"

namespace ladder {

namespace fs = std::filesystem;

namespace {

constexpr const char* kStartOfMessage = "<|im_start|>";
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

// As one text, of which the whole is encoded at once, as transformers does it.
struct Conversation {
  explicit Conversation(const std::vector<ChatMessage>& messages) {
    if (messages.front().role != "system") add({"system", kSystemMessage});
    for (const ChatMessage& message : messages) add(message);
  }

  std::string text;
  std::vector<TextSpan> learned;  // in order

 private:
  void add(const ChatMessage& message) {
    text += concat(kStartOfMessage, message.role, '\n');
    const std::int64_t begin = std::ssize(text);
    text += message.content + kEndOfMessage;
    if (message.role == "assistant" && message.is_learned)
      learned.push_back({begin, std::ssize(text)});
    text += '\n';
  }
};

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
  special(kStartOfMessage);
  end_ = special(kEndOfMessage);
}

void ChatFormat::append(const std::vector<ChatMessage>& messages, Tokenizer& tokenizer,
                        TokenList& tokens, std::vector<std::int64_t>& ends) const {
  const Conversation conversation(messages);
  std::int64_t place = tokens.size();
  std::vector<TextSpan> spans;
  tokenizer.encode(conversation.text, tokens, &spans);
  bool is_learned = false;
  auto next = conversation.learned.begin();  // that ends behind where the token begins
  for (const TextSpan& span : spans) {
    while (next != conversation.learned.end() && next->end <= span.begin) ++next;
    const bool is_now = next != conversation.learned.end() && next->begin < span.end;
    if (is_now != is_learned) ends.push_back(place);
    is_learned = is_now;
    ++place;
  }
  if (is_learned) ends.push_back(place);
}

TokenList ChatFormat::prompt(const std::string& user_message, Tokenizer& tokenizer) const {
  return tokenizer.encode(
      concat(Conversation({{"user", user_message}}).text, kStartOfMessage, "assistant\n"));
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
