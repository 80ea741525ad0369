#include "common/data/bpe/utf8.hpp"

#include <cstddef>

namespace ladder {
namespace {

struct Part {
  std::size_t num_bytes;
  bool is_character;  // or else a maximal ill-formed part
};

// The part at the beginning of the text, which is not empty. Table 3-7 of The Unicode Standard.
Part first_part(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {1, true};
  if (lead < 0xc2 || lead > 0xf4) return {1, false};
  const std::size_t num_bytes = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  unsigned least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;  // of the second byte
  unsigned most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  for (std::size_t i = 1; i < num_bytes; ++i) {
    if (i == text.size() || byte(i) < least || byte(i) > most) return {i, false};
    least = 0x80;
    most = 0xbf;
  }
  return {num_bytes, true};
}

}  // namespace

std::string_view well_formed_utf8(std::string_view text, std::string& buffer) {
  std::size_t good = 0;  // bytes that are well-formed and not in the buffer yet
  bool is_copied = false;
  std::string_view rest = text;
  while (good < rest.size()) {
    const Part part = first_part(rest.substr(good));
    if (part.is_character) {
      good += part.num_bytes;
      continue;
    }
    if (!is_copied) buffer.clear();
    is_copied = true;
    buffer += rest.substr(0, good);
    buffer += "\xef\xbf\xbd";
    rest.remove_prefix(good + part.num_bytes);
    good = 0;
  }
  if (!is_copied) return text;
  return buffer += rest;
}

}  // namespace ladder
