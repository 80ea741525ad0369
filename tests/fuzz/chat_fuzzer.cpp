// The bytes are a .jsonl file of conversations.
#include "common/data/bpe/bpe_tokenizer.hpp"
#include "common/data/conversations.hpp"
#include "tests/fuzz/fuzz_input.hpp"

namespace {

// The ranges of every row follow one another from its beginning, and are not empty.
void must_have_rows(const ladder::Conversations& chat) {
  for (std::size_t k = 0; k < chat.starts.size(); ++k) {
    const auto conversation = static_cast<std::int64_t>(k);
    for (const std::int64_t context : {1, 8, 1000}) {
      const ladder::RowTokens row = chat.row(conversation, context);
      std::int64_t place = chat.starts[k];
      for (const ladder::TokenRange& range : row.ranges) {
        ladder::must_hold(range.begin == place && range.length > 0);
        place += range.length;
      }
      ladder::must_hold(row.length() == std::min(chat.length(conversation), context + 1));
    }
    ladder::must_hold(chat.row(conversation, chat.length(conversation)).num_targets() > 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static ladder::BpeTokenizer tokenizer(LADDER_SOURCE "/common/data/bpe/fixtures/tokenizer.json");
  const ladder::FuzzFile file(bytes, size);
  ladder::reads_or_refuses(
      [&] { must_have_rows(ladder::read_jsonl_conversations(file.path(), tokenizer)); });
  return 0;
}
