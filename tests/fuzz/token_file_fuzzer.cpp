// The bytes are a .bin file of nanoGPT or llm.c.
#include <algorithm>

#include "common/data/token_file.hpp"
#include "tests/fuzz/fuzz_input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const ladder::FuzzFile file(bytes, size);
  for (const std::int64_t vocab_size :
       {std::int64_t{50257}, std::int64_t{1} << 16, std::int64_t{1} << 32}) {
    ladder::reads_or_refuses([&] {
      const ladder::TokenFile tokens(file.path(), vocab_size);
      const auto all_known = [&](auto list) {
        return std::all_of(list.begin(), list.end(),
                           [&](auto token) { return token < vocab_size; });
      };
      ladder::must_hold(tokens.num_tokens() > 0);
      ladder::must_hold(tokens.token_bytes() == 4 || vocab_size <= 65536);
      ladder::must_hold(tokens.token_bytes() == 2 ? all_known(tokens.tokens16())
                                                  : all_known(tokens.tokens32()));
    });
  }
  return 0;
}
