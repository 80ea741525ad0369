// A regular expression that cuts text into pieces, as the pre-tokenizers of Python's `tokenizers`
// do. Both use Oniguruma, so a pattern means the same here and there. What is a letter depends on the
// version of Unicode that the library was built with.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace ladder {

class SplitPattern {
 public:
  // Throws CheckError with the pattern and the engine's reason if it is not one.
  explicit SplitPattern(const std::string& pattern);
  ~SplitPattern();
  SplitPattern(SplitPattern&&) noexcept;

  // Calls visit(piece) with each match and with what is between matches, in order; no piece is
  // empty. The text is UTF-8. Throws CheckError if a match takes more attempts than a sensible
  // pattern needs.
  void split(std::string_view text, const std::function<void(std::string_view piece)>& visit);

 private:
  struct Engine;
  std::unique_ptr<Engine> engine_;
};

}  // namespace ladder
