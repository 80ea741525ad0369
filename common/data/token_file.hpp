// Token files as two well-known programs write them, and ./ladder encode. All are called .bin; their
// first bytes tell them apart.
//
//   nanoGPT   little-endian uint16 tokens and nothing else
//   llm.c     256 int32: magic, version, number of tokens, 0 …; then the tokens:
//             uint16 for magic 20240520 version 1, uint32 for magic 20240801 version 7
//   encode    a line of JSON, then arrays (encoded_file.hpp); here, only the tokens are read
//
// A nanoGPT file that begins with the tokens 55432, 308 (or 55713, 308) looks like llm.c's magic
// and is refused unless all else fits too. GPT-2's 50257 tokens cannot spell it.
//
// Nothing in a nanoGPT file says that it is one. So what is plainly something else is refused: text,
// an array of numpy with its header, and ids of 4 or 8 bytes, of which every other two are (almost)
// zero. Ids of 2 bytes cannot name a vocabulary above 65,536.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "common/data/mapped_file.hpp"

namespace ladder {

class TokenFile {
 public:
  // Maps the file and checks every token once. Throws CheckError with the file's name if the format
  // is unknown, the file has no tokens, its size does not match the header, its ids are too narrow
  // for vocab_size, or a token is not below that (with its position).
  TokenFile(const std::string& path, std::int64_t vocab_size);

  std::int64_t num_tokens() const { return num_tokens_; }
  std::int64_t token_bytes() const { return token_bytes_; }  // 2 or 4
  // Calls visitor(span of uint16 or uint32) with all tokens.
  template <class Visitor>
  decltype(auto) visit(Visitor&& visitor) const {
    return token_bytes_ == 2 ? visitor(tokens<std::uint16_t>()) : visitor(tokens<std::uint32_t>());
  }

 private:
  void read_llm_c_header();
  void check_is_nano_gpt() const;
  template <class Token>
  std::span<const Token> tokens() const {
    return {reinterpret_cast<const Token*>(file_.bytes().data() + first_byte_),
            static_cast<std::size_t>(num_tokens_)};
  }

  MappedFile file_;
  std::int64_t first_byte_ = 0;  // of the tokens
  std::int64_t token_bytes_ = 2;
  std::int64_t num_tokens_ = 0;
};

}  // namespace ladder
