// How a text is cut before tokens are merged: at tokens that are found as they are written, such as
// <|endoftext|>, and between them by a regular expression.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
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

  // Calls on_text(piece) with what is between tokens, unless it is empty, and on_token(id, its
  // content in the text), in order. Takes time linear in the text times the longest content.
  void split(std::string_view text, const std::function<void(std::string_view)>& on_text,
             const std::function<void(std::uint32_t, std::string_view)>& on_token) const;

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

class SplitPattern {
 public:
  // Throws CheckError with the pattern and the engine's reason if it is not one.
  explicit SplitPattern(const std::string& pattern);
  ~SplitPattern();
  SplitPattern(SplitPattern&&) noexcept;

  // Calls visit(piece, is_match) with each match and with what is between matches, in order; no
  // piece is empty. The text is UTF-8. Throws CheckError if a match takes more attempts than a sensible
  // pattern needs.
  void split(std::string_view text,
             const std::function<void(std::string_view piece, bool is_match)>& visit);

 private:
  struct Engine;
  std::unique_ptr<Engine> engine_;
};

}  // namespace ladder
