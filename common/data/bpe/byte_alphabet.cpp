#include "common/data/bpe/byte_alphabet.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace ladder {
namespace {

constexpr int kNumLetters = 256 + 68;  // characters up to the last letter; 68 bytes are invisible

bool is_visible(int byte) {
  return ('!' <= byte && byte <= '~') || (0xa1 <= byte && byte <= 0xff && byte != 0xad);
}

struct Alphabet {
  std::array<int, 256> character_of{};
  std::array<int, kNumLetters> byte_of{};
};

const Alphabet& alphabet() {
  static const Alphabet kAlphabet = [] {
    Alphabet made;
    made.byte_of.fill(-1);
    int next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const int character = is_visible(byte) ? byte : next++;
      made.character_of[static_cast<std::size_t>(byte)] = character;
      made.byte_of[static_cast<std::size_t>(character)] = byte;
    }
    return made;
  }();
  return kAlphabet;
}

}  // namespace

std::string letter_of(unsigned char byte) {
  const int character = alphabet().character_of[byte];
  if (character < 0x80) return {static_cast<char>(character)};
  return {static_cast<char>(0xc0 | (character >> 6)), static_cast<char>(0x80 | (character & 0x3f))};
}

std::optional<std::string> bytes_of_letters(std::string_view letters) {
  std::string bytes;
  for (std::size_t i = 0; i < letters.size(); ++i) {
    unsigned character = static_cast<unsigned char>(letters[i]);
    if (character >= 0x80) {  // all letters have at most two bytes
      if ((character & 0xe0) != 0xc0 || ++i == letters.size()) return std::nullopt;
      character = (character & 0x1f) << 6 | (static_cast<unsigned char>(letters[i]) & 0x3f);
    }
    const int byte = character < kNumLetters ? alphabet().byte_of[character] : -1;
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

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

std::size_t well_formed_start(std::string_view text) {
  std::size_t good = 0;
  while (good < text.size()) {
    const Part part = first_part(text.substr(good));
    if (!part.is_character) break;
    good += part.num_bytes;
  }
  return good;
}

std::string_view well_formed_utf8(std::string_view text, std::string& buffer) {
  std::size_t good = well_formed_start(text);
  if (good == text.size()) return text;
  buffer.clear();
  std::string_view rest = text;
  for (; good < rest.size(); good = well_formed_start(rest)) {
    buffer += rest.substr(0, good);
    buffer += "\xef\xbf\xbd";
    rest.remove_prefix(good + first_part(rest.substr(good)).num_bytes);
  }
  return buffer += rest;
}

}  // namespace ladder
