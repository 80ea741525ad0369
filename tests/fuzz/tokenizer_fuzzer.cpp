// The bytes are a tokenizer.json, which then encodes a text with a bit of everything.
#include "common/data/bpe/bpe_tokenizer.hpp"
#include "tests/fuzz/fuzz_input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const ladder::FuzzFile file(bytes, size);
  ladder::reads_or_refuses([&] {
    ladder::BpeTokenizer tokenizer(file.path());
    const std::string text = "the cat's <|im_end|>  12\n\t\xff\xe2\x82 é中😀 aaaa";
    const ladder::TokenList tokens = tokenizer.encode(text);
    for (std::int64_t i = 0; i < tokens.size(); ++i)
      ladder::must_hold(tokens[i] < tokenizer.vocab_size());
    ladder::must_hold(tokenizer.end_of_text() < tokenizer.vocab_size());
    ladder::must_hold(tokenizer.padding() < tokenizer.vocab_size());
  });
  return 0;
}
