#include "common/data/bpe/byte_alphabet.hpp"

#include <array>
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

}  // namespace ladder
