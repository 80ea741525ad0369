// Token ids in memory: of 2 bytes each, or of 4 if the vocabulary has more than 65,536.
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

namespace ladder {

class TokenList {
 public:
  TokenList() = default;  // for a vocabulary of at most 65,536
  explicit TokenList(std::int64_t vocab_size) {
    if (vocab_size > 65536) tokens_.emplace<Wide>();
  }

  void push_back(std::uint32_t token) {
    if (auto* narrow = std::get_if<Narrow>(&tokens_)) {
      narrow->push_back(static_cast<std::uint16_t>(token));
    } else {
      std::get<Wide>(tokens_).push_back(token);
    }
  }
  // Calls visitor(span of uint16 or uint32) with all tokens.
  template <class Visitor>
  decltype(auto) visit(Visitor&& visitor) const {
    if (const auto* narrow = std::get_if<Narrow>(&tokens_)) return visitor(std::span(*narrow));
    return visitor(std::span(std::get<Wide>(tokens_)));
  }
  std::int64_t size() const {
    return visit([](auto tokens) { return static_cast<std::int64_t>(tokens.size()); });
  }
  std::uint32_t operator[](std::int64_t i) const {
    return visit([=](auto tokens) -> std::uint32_t { return tokens[static_cast<std::size_t>(i)]; });
  }

 private:
  using Narrow = std::vector<std::uint16_t>;
  using Wide = std::vector<std::uint32_t>;
  std::variant<Narrow, Wide> tokens_;
};

}  // namespace ladder
