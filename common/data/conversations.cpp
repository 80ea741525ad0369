#include "common/data/conversations.hpp"

#include <algorithm>

#include "common/core/check.hpp"
#include "common/data/text_file.hpp"

namespace ladder {
namespace {

// Members of a message besides `content`: what a model is shown, or says, and whether that is a
// good answer.
constexpr const char* kOfMessage[] = {
    "name",     "refusal",  "prefix",    "reasoning_content", "reasoning",
    "thinking", "channel",  "recipient", "tool_calls",        "function_call",
    "image",    "images",   "image_url", "tool_call_id",      "audio",
    "audios",   "video",    "videos",    "enable_thinking",   "label",
    "labels",   "condition"};

ChatMessage message_of(const JsonlObject& entry, std::set<std::string>& ignored) {
  constexpr const char* kRead[] = {"role", "content", "weight"};
  const std::string role = entry.required("role");
  check(role == "system" || role == "user" || role == "assistant", entry.place(),
        ": the role is \"", role, "\", it must be system, user or assistant");
  entry.account_for(kRead, kOfMessage, ignored);
  const std::optional<int> weight = entry.weight();
  check(role == "assistant" || weight != 1, entry.place(), ": \"weight\" is 1, but of a ", role,
        "'s message nothing is learned; leave it out, or make it 0");
  return {role, entry.required("content"), weight != 0};
}

std::vector<ChatMessage> messages_of(const JsonlObject& object, std::set<std::string>& ignored) {
  constexpr const char* kRead[] = {"messages"};
  object.account_for(kRead, kLearnedBy, ignored);
  const auto list = object.objects("messages");
  check(list.has_value(), object.place(),
        ": has no \"messages\"; a conversation is {\"messages\": [{\"role\": \"user\", "
        "\"content\": \"…\"}, …]}");
  std::vector<ChatMessage> messages;
  for (const JsonlObject& entry : *list) messages.push_back(message_of(entry, ignored));
  const bool has_target = std::ranges::any_of(
      messages, [](const auto& each) { return each.role == "assistant" && each.is_learned; });
  check(has_target, object.place(),
        messages.empty() ? ": the conversation has no messages"
                         : ": no message is the assistant's with a weight of 1, so there is "
                           "nothing to learn");
  return messages;
}

}  // namespace

RowTokens row_of_conversation(const TokenizedText& text, std::int64_t conversation,
                              std::int64_t context) {
  const auto k = static_cast<std::size_t>(conversation);
  const auto first = static_cast<std::size_t>(text.first_parts[k]);
  const auto last = k + 1 < text.first_parts.size()
                        ? static_cast<std::size_t>(text.first_parts[k + 1])
                        : text.part_ends.size();
  std::int64_t begin = text.starts[k];
  const std::int64_t end = begin + std::min(text.length(conversation), context + 1);
  RowTokens row;
  bool is_target = false;
  const auto add_up_to = [&](std::int64_t part_end) {
    const std::int64_t length = std::min(part_end, end) - begin;
    if (length > 0) row.ranges.push_back({begin, length, is_target});
    begin += length;
    is_target = !is_target;
  };
  for (std::size_t i = first; i < last; ++i) add_up_to(text.part_ends[i]);
  add_up_to(end);
  return row;
}

TokenizedText read_jsonl_conversations(const std::string& path, Tokenizer& tokenizer) {
  const ChatFormat format(tokenizer);
  return read_jsonl_objects(
      path, tokenizer, "conversations", [&](const JsonlObject& object, TokenizedText& text) {
        const std::vector<ChatMessage> messages = messages_of(object, text.ignored);
        text.starts.push_back(text.tokens.size());
        text.first_parts.push_back(static_cast<std::int64_t>(text.part_ends.size()));
        format.append(messages, tokenizer, text.tokens, text.part_ends);
      });
}

}  // namespace ladder
