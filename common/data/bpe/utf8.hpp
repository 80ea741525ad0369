// Text that need not be UTF-8, as text that is.
#pragma once

#include <string>
#include <string_view>

namespace ladder {

// Returns the text itself if it is well-formed UTF-8. Otherwise each maximal ill-formed part
// becomes U+FFFD, as in Python's bytes.decode("utf-8", "replace") (The Unicode Standard, section
// 3.9, "U+FFFD Substitution of Maximal Subparts"): the result is then in `buffer`.
std::string_view well_formed_utf8(std::string_view text, std::string& buffer);

}  // namespace ladder
