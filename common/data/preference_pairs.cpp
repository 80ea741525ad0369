#include "common/data/preference_pairs.hpp"

#include <algorithm>

#include "common/core/check.hpp"
#include "common/data/text_file.hpp"

namespace ladder {

namespace {

struct Parts {
  TokenRange prompt, chosen, rejected;
};

Parts parts_of(const PreferencePairs& pairs, std::int64_t pair) {
  const std::int64_t* ends = pairs.part_ends.data() + 3 * pair;
  const std::int64_t begin = pair == 0 ? 0 : ends[-1];
  return {{begin, ends[0] - begin, false},
          {ends[0], ends[1] - ends[0], true},
          {ends[1], ends[2] - ends[1], true}};
}

}  // namespace

void PreferencePairs::append(std::string_view prompt, std::string_view chosen,
                             std::string_view rejected, Tokenizer& tokenizer) {
  tokenizer.encode(concat(prompt, "\n"), tokens);
  part_ends.push_back(tokens.size());
  for (const std::string_view answer : {chosen, rejected}) {
    tokenizer.encode(answer, tokens);
    tokens.push_back(tokenizer.end_of_text());
    part_ends.push_back(tokens.size());
  }
}

std::int64_t PreferencePairs::num_pairs() const {
  return static_cast<std::int64_t>(part_ends.size()) / 3;
}

RowTokens PreferencePairs::row(std::int64_t pair, Answer answer, std::int64_t context) const {
  const Parts parts = parts_of(*this, pair);
  TokenRange text = answer == Answer::kChosen ? parts.chosen : parts.rejected;
  text.length = std::min(text.length, context);  // leaves room for the newline
  const std::int64_t shown = std::min(parts.prompt.length, context + 1 - text.length);
  return {{{parts.prompt.begin + parts.prompt.length - shown, shown, false}, text}};
}

bool PreferencePairs::is_cut(std::int64_t pair, std::int64_t context) const {
  const Parts parts = parts_of(*this, pair);
  const std::int64_t longer_answer = std::max(parts.chosen.length, parts.rejected.length);
  return parts.prompt.length + longer_answer > context + 1;
}

PreferencePairs read_jsonl_pairs(const std::string& path, Tokenizer& tokenizer) {
  PreferencePairs pairs{TokenList(tokenizer.vocab_size())};
  read_jsonl_objects(path, [&](const JsonlObject& object) {
    object.refuse(kWeights);
    object.refuse(kShown);
    const auto required = [&](const char* name) {
      const auto text = object.text(name);
      check(text.has_value(), object.place(), ": has no \"", name,
            "\"; a preference pair has the strings \"prompt\", \"chosen\" and \"rejected\"");
      return *text;
    };
    const std::string prompt = required("prompt");
    const std::string chosen = required("chosen");
    const std::string rejected = required("rejected");
    check(chosen != rejected, object.place(),
          ": \"chosen\" and \"rejected\" are equal, so neither is preferred; remove the line or "
          "correct it");
    pairs.append(prompt, chosen, rejected, tokenizer);
  });
  check(pairs.num_pairs() > 0, path, ": has no preference pairs: no line is a JSON object");
  return pairs;
}

}  // namespace ladder
