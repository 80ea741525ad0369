// Unicode's normalization form C (UAX 15), in which Qwen's tokenizers read a text: e and an accent
// behind it become é, and several accents come in one order.
//
// The result is that of Python's `tokenizers` 0.23.3, which knows Unicode 9. utf8proc knows later
// characters; as in Python, they are left as they are, and nothing combines across them.
#pragma once

#include <string>
#include <string_view>

namespace ladder {

// `text` is well-formed UTF-8. Takes O(n log n).
std::string normal_form_c(std::string_view text);

}  // namespace ladder
