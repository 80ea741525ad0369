#include "common/data/bpe/normal_form.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <vector>

#include "common/core/check.hpp"

namespace ladder {
namespace {

using Character = utf8proc_int32_t;

struct CharacterRange {
  Character first, last;
};

// All characters of Unicode 10 to 18 that normalization changes or moves, with others between them
// that it leaves alone anyway. And U+11A7, which is no Hangul consonant, but utf8proc 2.8 takes it
// for one and drops it.
constexpr CharacterRange kLeftAlone[] = {
    {0x5c8, 0x5c9},     {0x7fd, 0x7fd},     {0x897, 0x8d3},     {0x9fe, 0x9fe},
    {0xc3c, 0xc3c},     {0xd3b, 0xd3c},     {0xeba, 0xeba},     {0x11a7, 0x11a7},
    {0x1715, 0x1715},   {0x1abf, 0x1af0},   {0x1df6, 0x1dfa},   {0xa82c, 0xa82c},
    {0x105c9, 0x105e4}, {0x10d24, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b},
    {0x11382, 0x113d0}, {0x1145e, 0x1145e}, {0x11839, 0x11a99}, {0x11d42, 0x1612f},
    {0x16d63, 0x16ff1}, {0x1d127, 0x1d128}, {0x1d250, 0x1d281}, {0x1e08f, 0x1e6f5}};

bool is_left_alone(Character character) {
  const auto after = std::ranges::upper_bound(kLeftAlone, character, {}, &CharacterRange::first);
  return after != std::begin(kLeftAlone) && character <= std::prev(after)->last;
}

// Whether it may combine with a character before it, or change places with one: marks, and the
// vowels and last consonants of Hangul.
bool may_join(Character character) {
  if (character < 0x300 || is_left_alone(character)) return false;
  const utf8proc_category_t category = utf8proc_category(character);
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         (0x1160 <= character && character <= 0x11ff);
}

// Reads the character at `place`, and moves on to the next one.
Character read_character(std::string_view text, std::size_t& place) {
  const auto* begin = reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + place;
  Character character = *begin;
  place += character < 0x80
               ? 1
               : static_cast<std::size_t>(utf8proc_iterate(
                     begin, std::ssize(text) - static_cast<std::int64_t>(place), &character));
  return character;
}

int combining_class(Character character) {
  return utf8proc_get_property(character)->combining_class;
}

// utf8proc's own function takes time quadratic in the number of marks.
void decompose(std::vector<Character>& characters) {
  std::vector<Character> all;
  for (const Character character : characters) {
    Character parts[8];
    int boundary = 0;
    const auto count =
        utf8proc_decompose_char(character, parts, std::ssize(parts), UTF8PROC_DECOMPOSE, &boundary);
    check(0 < count && count <= std::ssize(parts), "utf8proc cannot decompose the character ",
          character);
    all.insert(all.end(), parts, parts + count);
  }
  const auto is_mark = [](Character each) { return combining_class(each) != 0; };
  for (auto end = all.begin(); end != all.end();) {
    const auto begin = std::find_if(end, all.end(), is_mark);
    end = std::find_if_not(begin, all.end(), is_mark);
    std::ranges::stable_sort(begin, end, {}, combining_class);
  }
  characters = std::move(all);
}

// Appends the normal form of characters of which no other one is a part.
void append_normal_form(std::vector<Character> characters, std::string& text) {
  constexpr auto kCompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  decompose(characters);
  const auto count = utf8proc_normalize_utf32(characters.data(), std::ssize(characters), kCompose);
  check(count > 0, "utf8proc cannot compose ", characters.size(), " characters");
  for (const Character character : std::span(characters).first(static_cast<std::size_t>(count))) {
    utf8proc_uint8_t bytes[4];
    const auto size = utf8proc_encode_char(character, bytes);
    text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
  }
}

}  // namespace

std::string normal_form_c(std::string_view text) {
  std::string form;
  std::vector<Character> characters;  // of the part from `begin` to `end`
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    characters.assign(1, read_character(text, end));
    const bool is_alone = is_left_alone(characters[0]);
    for (std::size_t next = end; !is_alone && next < text.size(); end = next) {
      const Character character = read_character(text, next);
      if (!may_join(character)) break;
      characters.push_back(character);
    }
    if (is_alone || (characters.size() == 1 && characters[0] < 0xc0)) {
      form += text.substr(begin, end - begin);
    } else {
      append_normal_form(characters, form);
    }
  }
  return form;
}

}  // namespace ladder
