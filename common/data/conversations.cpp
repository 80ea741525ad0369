#include "common/data/conversations.hpp"

#include <algorithm>

#include "common/core/check.hpp"
#include "common/data/jsonl_file.hpp"

namespace ladder {
namespace {

std::vector<ChatMessage> messages_of(const JsonlObject& object) {
  const auto list = object.objects("messages");
  check(list.has_value(), object.place(),
        ": has no \"messages\"; a conversation is {\"messages\": [{\"role\": \"user\", "
        "\"content\": \"…\"}, …]}");
  std::vector<ChatMessage> messages;
  for (const JsonlObject& entry : *list) {
    const auto required = [&](const char* name) {
      const auto text = entry.text(name);
      check(text.has_value(), entry.place(), ": has no \"", name, "\"");
      return *text;
    };
    const std::string role = required("role");
    check(role == "system" || role == "user" || role == "assistant", entry.place(),
          ": the role is \"", role, "\", it must be system, user or assistant");
    messages.push_back({role, required("content")});
  }
  check(std::ranges::find(messages, "assistant", &ChatMessage::role) != messages.end(),
        object.place(),
        messages.empty() ? ": the conversation has no messages"
                         : ": no message is the assistant's, so there is nothing "
                           "to learn");
  return messages;
}

}  // namespace

void Conversations::append(const std::vector<ChatMessage>& messages, const ChatFormat& format,
                           Tokenizer& tokenizer) {
  starts.push_back(tokens.size());
  first_ranges.push_back(static_cast<std::int64_t>(range_ends.size()));
  format.append(messages, tokenizer, tokens, range_ends);
}

std::int64_t Conversations::length(std::int64_t conversation) const {
  const auto k = static_cast<std::size_t>(conversation);
  return (k + 1 < starts.size() ? starts[k + 1] : tokens.size()) - starts[k];
}

RowTokens Conversations::row(std::int64_t conversation, std::int64_t context) const {
  const auto k = static_cast<std::size_t>(conversation);
  const auto first = static_cast<std::size_t>(first_ranges[k]);
  const auto last = k + 1 < first_ranges.size() ? static_cast<std::size_t>(first_ranges[k + 1])
                                                : range_ends.size();
  const std::int64_t end = starts[k] + std::min(length(conversation), context + 1);
  RowTokens row;
  std::int64_t begin = starts[k];
  bool is_target = false;
  const auto add_up_to = [&](std::int64_t range_end) {
    const std::int64_t length = std::min(range_end, end) - begin;
    if (length > 0) row.ranges.push_back({begin, length, is_target});
    begin += length;
    is_target = !is_target;
  };
  for (std::size_t i = first; i < last; ++i) add_up_to(range_ends[i]);
  add_up_to(end);
  return row;
}

Conversations read_jsonl_conversations(const std::string& path, Tokenizer& tokenizer) {
  const ChatFormat format(tokenizer);
  Conversations conversations{TokenList(tokenizer.vocab_size())};
  read_jsonl_objects(path, [&](const JsonlObject& object) {
    conversations.append(messages_of(object), format, tokenizer);
  });
  check(!conversations.starts.empty(), path, ": has no conversations: no line is a JSON object");
  return conversations;
}

}  // namespace ladder
