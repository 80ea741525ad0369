// Conversations as tokens, in the chat template of chat_format.hpp: a row each, of which a model
// learns what the assistant says, unless the message has the weight 0.
//
// A conversation longer than context + 1 tokens loses its end, as a document does. A row may then
// be left without a target, which is legal: the denominator of the loss counts what the whole step
// has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/data/chat_format.hpp"
#include "common/data/row_tokens.hpp"

namespace ladder {

struct Conversations {
  TokenList tokens;
  std::vector<std::int64_t> starts = {};  // where each conversation begins
  // Where each range of a conversation ends, in turn not learned and learned, and for each
  // conversation where its ranges begin in this list. What is after the last one is not learned.
  std::vector<std::int64_t> range_ends = {}, first_ranges = {};

  void append(const std::vector<ChatMessage>& messages, const ChatFormat& format,
              Tokenizer& tokenizer);
  std::int64_t length(std::int64_t conversation) const;
  // Cut to at most context + 1 tokens.
  RowTokens row(std::int64_t conversation, std::int64_t context) const;
};

// Reads a .jsonl file, whose objects have `messages`, a list of objects with the strings `role` and
// `content`, and perhaps a `weight` of 0 or 1, as OpenAI's format has it. Members that other
// programs learn by are refused: kWeights and kShown of a line, and those of a message that
// conversations.cpp lists. Others are ignored. Throws the errors of read_jsonl_objects(), and
// CheckError with file:line if there is no message, none that is learned, a weight of 1 that is not
// the assistant's, or a role other than system, user and assistant.
Conversations read_jsonl_conversations(const std::string& path, Tokenizer& tokenizer);

}  // namespace ladder
