#include "common/data/preference_pairs.hpp"

#include <algorithm>

#include "common/core/check.hpp"
#include "common/data/text_file.hpp"

namespace ladder {

void append_pair(std::string_view prompt, std::string_view chosen, std::string_view rejected,
                 Tokenizer& tokenizer, TokenizedText& pairs) {
  pairs.starts.push_back(pairs.tokens.size());
  append_text(concat(prompt, "\n"), DocumentPart::kStart, tokenizer, pairs.tokens);
  pairs.part_ends.push_back(pairs.tokens.size());
  for (const std::string_view answer : {chosen, rejected}) {
    append_text(answer, DocumentPart::kEnd, tokenizer, pairs.tokens);
    pairs.part_ends.push_back(pairs.tokens.size());
  }
}

RowTokens row_of_pair(const TokenizedText& pairs, std::int64_t pair, Answer answer,
                      std::int64_t context) {
  const std::int64_t* ends = pairs.part_ends.data() + 3 * pair;
  const std::int64_t begin = pairs.starts[static_cast<std::size_t>(pair)], prompt_end = ends[0];
  if (answer == Answer::kRejected) ++ends;
  const std::int64_t length = std::min(ends[1] - ends[0], context);  // leaves room for the newline
  const std::int64_t shown = std::min(prompt_end - begin, context + 1 - length);
  return {{{prompt_end - shown, shown, false}, {ends[0], length}}};
}

TokenizedText read_jsonl_pairs(const std::string& path, Tokenizer& tokenizer) {
  constexpr const char* kMembers =
      "; a preference pair has the strings \"prompt\", \"chosen\" and \"rejected\"";
  return read_jsonl_objects(
      path, tokenizer, "preference pairs", [&](const JsonlObject& object, TokenizedText& pairs) {
        constexpr const char* kRead[] = {"prompt", "chosen", "rejected"};
        object.account_for(kRead, kLearnedBy, pairs.ignored);
        const std::string prompt = object.required("prompt", kMembers);
        const std::string chosen = object.required("chosen", kMembers);
        const std::string rejected = object.required("rejected", kMembers);
        check(chosen != rejected, object.place(),
              ": \"chosen\" and \"rejected\" are equal, so neither is preferred; remove the line "
              "or correct it");
        append_pair(prompt, chosen, rejected, tokenizer, pairs);
      });
}

}  // namespace ladder
