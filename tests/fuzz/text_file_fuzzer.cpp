// The bytes are a .jsonl file, and a .txt file.
#include "common/data/text_file.hpp"
#include "tests/fuzz/fuzz_input.hpp"

namespace {

// Documents begin in order, and each has its end-of-text token.
void must_be_whole(const ladder::TokenizedText& text) {
  auto end = static_cast<std::int64_t>(text.tokens.size());
  ladder::must_hold(text.document_starts.front() == 0);
  for (auto start = text.document_starts.rbegin(); start != text.document_starts.rend(); ++start) {
    ladder::must_hold(*start < end);
    end = *start;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const ladder::FuzzFile file(bytes, size);
  ladder::reads_or_refuses([&] { must_be_whole(ladder::read_jsonl(file.path())); });
  ladder::reads_or_refuses([&] {
    const ladder::TokenizedText text = ladder::read_txt(file.path());
    must_be_whole(text);
    ladder::must_hold(text.tokens.size() == size + 1);
  });
  return 0;
}
