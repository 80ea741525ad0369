// The bytes are a .jsonl file of documents or of preference pairs, and a .txt file.
#include <tuple>

#include "common/data/preference_pairs.hpp"
#include "common/data/text_file.hpp"
#include "tests/fuzz/fuzz_input.hpp"

namespace {

// Documents begin in order, and each has its end-of-text token.
void must_be_whole(const ladder::TokenizedText& text) {
  auto end = text.tokens.size();
  ladder::must_hold(text.document_starts.front() == 0);
  for (auto start = text.document_starts.rbegin(); start != text.document_starts.rend(); ++start) {
    ladder::must_hold(*start < end);
    end = *start;
  }
}

// Every pair has two rows that fit, with an answer to predict.
void must_have_rows(const ladder::PreferencePairs& pairs) {
  const auto num_tokens = pairs.tokens.size();
  ladder::must_hold(pairs.part_ends.back() == num_tokens);
  for (std::int64_t pair = 0; pair < pairs.num_pairs(); ++pair) {
    for (const auto answer : {ladder::Answer::kChosen, ladder::Answer::kRejected}) {
      for (const std::int64_t context : {1, 8}) {
        const ladder::RowTokens row = pairs.row(pair, answer, context);
        const auto& [prompt, text] = std::tie(row.ranges.at(0), row.ranges.at(1));
        ladder::must_hold(0 <= prompt.begin && prompt.length >= 1);
        ladder::must_hold(prompt.begin + prompt.length <= text.begin);
        ladder::must_hold(text.begin + text.length <= num_tokens);
        ladder::must_hold(row.num_targets() >= 1 && row.length() <= context + 1);
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const ladder::FuzzFile file(bytes, size);
  ladder::ByteTokenizer tokenizer;
  ladder::reads_or_refuses([&] { must_be_whole(ladder::read_jsonl(file.path(), tokenizer)); });
  ladder::reads_or_refuses(
      [&] { must_have_rows(ladder::read_jsonl_pairs(file.path(), tokenizer)); });
  ladder::reads_or_refuses([&] {
    const ladder::TokenizedText text = ladder::read_txt(file.path(), tokenizer);
    must_be_whole(text);
    ladder::must_hold(text.tokens.size() == static_cast<std::int64_t>(size) + 1);
  });
  return 0;
}
