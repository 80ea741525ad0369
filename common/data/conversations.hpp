// Conversations as rows: each is one, of which a model learns what the assistant says. ./ladder
// encode has made the tokens, in the chat template of the model, and says which are learned.
//
// A conversation longer than context + 1 tokens loses its end, as a document does. A row may then
// be left without a target, which is legal: the denominator of the loss counts what the whole step
// has.
#pragma once

#include <cstdint>

#include "common/data/row_tokens.hpp"

namespace ladder {

// The row of a conversation, cut to at most context + 1 tokens. The parts of a conversation are in
// turn not learned and learned; what is after the last one is not learned.
RowTokens row_of_conversation(const TokenizedText& text, std::int64_t conversation,
                              std::int64_t context);

}  // namespace ladder
