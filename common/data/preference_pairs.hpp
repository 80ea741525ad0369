// Preference pairs as tokens: a prompt, and two answers to it, of which the chosen one is better
// than the rejected one.
//
// Each answer becomes a row: prompt, newline, answer, end-of-text token, and before them what begins
// a document. A document is laid out the same way, so a model trained on documents has seen the
// format. Only the answer and its end-of-text token are targets. So an empty answer is legal: its
// target says that the answer ends at once. The prompt with its newline is one text for the tokenizer,
// and each answer another, so that both rows have the same prompt.
//
// A row longer than context + 1 tokens is cut: the prompt loses its beginning, so that the answer
// stays whole. An answer that does not even fit after the newline alone loses its end; the newline
// stays, because the answer's first token is predicted from it. (With tokens of several bytes it is
// the token that ends with the newline.) The two rows of a pair are cut independently, so the one
// with the shorter answer may show more of the prompt. Answers that differ only in what is cut off
// become two equal rows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/data/row_tokens.hpp"

namespace ladder {

enum class Answer { kChosen, kRejected };

// The parts of a pair are prompt and newline, the chosen answer and its end, and the rejected one.
// With the same tokenizer as the pairs before.
void append_pair(std::string_view prompt, std::string_view chosen, std::string_view rejected,
                 Tokenizer& tokenizer, TokenizedText& pairs);

// The row of one answer, cut to at most context + 1 tokens; context is at least 1.
RowTokens row_of_pair(const TokenizedText& pairs, std::int64_t pair, Answer answer,
                      std::int64_t context);

// Reads a .jsonl file, whose objects have the strings `prompt`, `chosen` and `rejected`. Other
// members are accounted for; kLearnedBy are refused. Throws the errors of read_jsonl_objects(), and
// CheckError with file:line if one of the three is missing or not a string, or if both answers are
// equal.
TokenizedText read_jsonl_pairs(const std::string& path, Tokenizer& tokenizer);

}  // namespace ladder
