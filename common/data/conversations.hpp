// Conversations as tokens, in the chat template of chat_format.hpp: a row each, of which a model
// learns what the assistant says, unless the message has the weight 0.
//
// A conversation longer than context + 1 tokens loses its end, as a document does. A row may then
// be left without a target, which is legal: the denominator of the loss counts what the whole step
// has.
#pragma once

#include <cstdint>
#include <string>

#include "common/data/chat_format.hpp"
#include "common/data/row_tokens.hpp"

namespace ladder {

// The row of a conversation, cut to at most context + 1 tokens. The parts of a conversation are in
// turn not learned and learned; what is after the last one is not learned.
RowTokens row_of_conversation(const TokenizedText& text, std::int64_t conversation,
                              std::int64_t context);

// Reads a .jsonl file, whose objects have `messages`, a list of objects with the strings `role` and
// `content`, and perhaps a `weight` of 0 or 1, as OpenAI's format has it. Other members are accounted
// for: kLearnedBy of a line are refused, and those of a message that conversations.cpp lists. Throws
// the errors of read_jsonl_objects(), and CheckError with file:line if there is no message, none that
// is learned, a weight of 1 that is not the assistant's, or a role other than system, user and
// assistant.
TokenizedText read_jsonl_conversations(const std::string& path, Tokenizer& tokenizer);

}  // namespace ladder
