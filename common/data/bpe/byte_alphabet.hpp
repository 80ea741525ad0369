// The letters in which a byte-level tokenizer writes bytes: each byte is a visible character. Those
// that are visible in Latin-1 stand for themselves, the others are U+0100, U+0101, … in order. So a
// space is Ġ, U+0120 (GPT-2's bytes_to_unicode()).
// Here is also text that need not be UTF-8, as text that is.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ladder {

// The letter of a byte, in UTF-8.
std::string letter_of(unsigned char byte);

// The bytes that these letters stand for; nothing if one is of another alphabet.
std::optional<std::string> bytes_of_letters(std::string_view letters);

// The bytes of the text before the first that belongs to no character of UTF-8.
std::size_t well_formed_start(std::string_view text);

// Returns the text itself if it is well-formed UTF-8. Otherwise each maximal ill-formed part
// becomes U+FFFD, as in Python's bytes.decode("utf-8", "replace") (The Unicode Standard, section
// 3.9, "U+FFFD Substitution of Maximal Subparts"): the result is then in `buffer`.
std::string_view well_formed_utf8(std::string_view text, std::string& buffer);

}  // namespace ladder
