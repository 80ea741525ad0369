// Tokens that are found inside text before anything else is done with it, such as <|endoftext|>.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ladder {

struct AddedToken {
  std::uint32_t id = 0;
  std::string content;         // as it is written in text; not empty
  bool is_special = false;     // stands for no text
  bool is_normalized = false;  // is looked for after all that are not
};

// Looks for the contents: the leftmost one in the text, and of those that begin at the same place
// the longest.
class AddedTokenSearch {
 public:
  explicit AddedTokenSearch(const std::vector<AddedToken>& tokens);

  // Calls on_text(piece) with what is between tokens, unless it is empty, and on_token(id), in
  // order. Takes time linear in the text times the longest content.
  void split(std::string_view text, const std::function<void(std::string_view)>& on_text,
             const std::function<void(std::uint32_t)>& on_token) const;

 private:
  struct Node {  // of a trie of bytes
    std::unordered_map<char, std::size_t> next = {};
    std::int64_t token = -1;
  };
  struct Found {
    std::int64_t token = -1;  // none
    std::size_t num_bytes = 0;
  };
  Found longest_at_start(std::string_view text) const;

  std::vector<Node> nodes_;
  bool is_first_byte_[256] = {};
};

}  // namespace ladder
