#include "common/data/bpe/bpe_tokenizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/core/check.hpp"
#include "common/core/timer.hpp"
#include "common/data/bpe/byte_alphabet.hpp"
#include "common/data/mapped_file.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/temp_folder.hpp"

namespace ladder {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using Ids = std::vector<std::uint32_t>;

// Made by Python's tokenizers, as were all ids below: SmolLM2's settings, 340 tokens.
const std::string kFixture = LADDER_SOURCE "/common/data/bpe/fixtures/tokenizer.json";

Ids encode(const std::string& text) {
  BpeTokenizer tokenizer(kFixture);
  return tokenizer.encode(text).ids();
}

TEST(BpeTokenizer, GivesTheIdsOfPythonsTokenizers) {
  EXPECT_EQ(encode(""), Ids());
  EXPECT_EQ(encode("the cat sat"), (Ids{302, 271, 303}));
  EXPECT_EQ(encode("don't!  12 café<|im_end|>\n\n x"),
            (Ids{328, 308, 3, 223, 223, 19, 20, 266, 324, 130, 105, 2, 201, 201, 223, 90}));
  EXPECT_EQ(encode("中文😀 \u00a0the"), (Ids{282, 294, 284, 289, 223, 129, 257, 302}));
  EXPECT_EQ(encode("<|im_start|"), (Ids{30, 94, 75, 79, 65, 263, 67, 84, 86, 94}));
  EXPECT_EQ(encode("SELECT name WHERE id = 1234"),
            (Ids{320, 313, 291, 71, 223, 321, 39, 274, 70, 223, 31, 223, 19, 20, 21, 22}));
  EXPECT_EQ(encode("  the   cats\n\n"), (Ids{223, 262, 223, 223, 271, 85, 201, 201}));
  EXPECT_EQ(encode("assistant\nHi"), (Ids{67, 279, 293, 201, 42, 75}));
  EXPECT_EQ(encode("\xff\xe2\x82("), (Ids{174, 126, 124, 174, 126, 124, 10}));
}

// The fixture, once `change` has changed its JSON.
template <class Change>
BpeTokenizer tokenizer_after(const TempFolder& folder, const Change& change) {
  auto file = nlohmann::json::parse(MappedFile(kFixture).bytes());
  change(file);
  return BpeTokenizer(folder.write("tokenizer.json", file.dump()));
}

json added_token(std::uint32_t id, const char* content, bool is_normalized) {
  return {{"id", id}, {"content", content}, {"special", false}, {"normalized", is_normalized}};
}

TEST(BpeTokenizer, ReadsTextInNormalFormC) {
  const TempFolder folder;
  const auto change = [](json& file) {
    file["normalizer"] = {{"type", "NFC"}};
    file["added_tokens"].push_back(added_token(340, "ca\u0301t", /*is_normalized=*/true));
    file["added_tokens"].push_back(added_token(341, "a\u030a", /*is_normalized=*/false));
  };
  BpeTokenizer tokenizer = tokenizer_after(folder, change);
  const auto expect = [&](const std::string& text, const Ids& ids) {
    EXPECT_EQ(tokenizer.encode(text).ids(), ids) << text;
  };
  expect("cafe\u0301", {327, 130, 105});
  expect("cafe", {327, 71});
  expect("c\u00e1t ca\u0301t", {340, 223, 340});
  expect("\u212b a\u030a\u0323", {130, 230, 223, 341, 139, 99});
  expect("<|im_start|>\u0301<|im_end|>\u0301", {1, 139, 226, 2, 139, 226});
  const auto twice = [&](json& file) {
    change(file);
    file["added_tokens"].push_back(added_token(342, "c\u00e1t", /*is_normalized=*/true));
  };
  expect_throws<CheckError>([&] { tokenizer_after(folder, twice); }, {"340 and 342 are both"});
}

TEST(BpeTokenizer, LeavesOutWhatAStageRemoves) {
  const TempFolder folder;
  const auto ids = [&](const char* behavior, bool is_inverted) {
    return tokenizer_after(folder,
                           [&](json& file) {
                             file["pre_tokenizer"]["pretokenizers"][0] = {
                                 {"type", "Split"},
                                 {"pattern", {{"Regex", "[aeiou]+"}}},
                                 {"behavior", behavior},
                                 {"invert", is_inverted}};
                           })
        .encode("the cat sat ee")
        .ids();
  };
  EXPECT_EQ(ids("Removed", false), (Ids{259, 266, 86, 267, 86, 223}));
  EXPECT_EQ(ids("Removed", true), (Ids{71, 67, 67, 329}));
  EXPECT_EQ(ids("Isolated", true), (Ids{259, 71, 266, 67, 86, 267, 67, 86, 223, 329}));
}

TEST(BpeTokenizer, TheSecondTimeComesFromTheCache) {
  BpeTokenizer tokenizer(kFixture);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(tokenizer.encode("the cat sat").ids(), (Ids{302, 271, 303}));
}

TEST(BpeTokenizer, DecodesWhatItEncodes) {
  BpeTokenizer tokenizer(kFixture);
  std::string text = "<|endoftext|>";
  for (int byte = 0; byte < 0x80; ++byte) text.push_back(static_cast<char>(byte));
  text += "é中😀\u0301<|im_start|>";
  const Ids ids = tokenizer.encode(text).ids();
  EXPECT_EQ("<|endoftext|>" + tokenizer.decode(ids) + "<|im_start|>", text);
  EXPECT_THROW(tokenizer.decode(Ids{340}), CheckError);
}

TEST(BpeTokenizer, KnowsItsSpecialTokens) {
  const BpeTokenizer tokenizer(kFixture);
  EXPECT_EQ(tokenizer.vocab_size(), 340);
  EXPECT_EQ(tokenizer.end_of_text(), 0u);
  EXPECT_EQ(tokenizer.padding(), 0u);
  EXPECT_EQ(tokenizer.text_of(2), "");
  EXPECT_EQ(tokenizer.text_of(302), "the");
}

// Of the merges in a piece, the first in the list is done first, and the leftmost.
class BpeOfAs : public ::testing::Test {
 protected:
  // Tokens are "a" × 1, 2, 4, … and pairs of the same.
  static BpeDescription doubling(int num_merges) {
    BpeDescription description{.file = "made", .end_of_text = "!", .padding = "!"};
    std::string token = "a";
    description.vocabulary["!"] = 0;
    description.vocabulary["a"] = 1;
    for (int i = 0; i < num_merges; ++i) {
      description.merges.emplace_back(token, token);
      token += token;
      description.vocabulary[token] = static_cast<std::uint32_t>(i) + 2;
    }
    description.vocab_size = num_merges + 2;
    return description;
  }
  static Ids encode(BpeModel& model, const std::string& text) {
    TokenList tokens;
    model.encode(text, tokens);
    return tokens.ids();
  }
};

TEST_F(BpeOfAs, MergesTheLeftmostPairFirst) {
  BpeModel model(doubling(2));
  EXPECT_THAT(encode(model, "a"), ElementsAre(1));
  EXPECT_THAT(encode(model, "aaa"), ElementsAre(2, 1));
  EXPECT_THAT(encode(model, "aaaaaaa"), ElementsAre(3, 2, 1));
}

TEST_F(BpeOfAs, TakesHardlyLongerForALongPieceThanItsLength) {
  BpeModel model(doubling(10));
  const Timer timer;
  EXPECT_EQ(encode(model, std::string(1 << 20, 'a')).size(), 1u << 10);
  EXPECT_LT(timer.seconds(), 20);  // quadratic: hours
}

TEST_F(BpeOfAs, LeavesOutAByteThatHasNoToken) {
  BpeModel model(doubling(1));
  EXPECT_THAT(encode(model, "aba"), ElementsAre(2));
}

TEST_F(BpeOfAs, AWholePieceMayIgnoreMerges) {
  BpeDescription description = doubling(1);
  description.vocabulary["aaa"] = 3;
  description.vocab_size = 4;
  EXPECT_THAT(encode(*std::make_unique<BpeModel>(description), "aaa"), ElementsAre(2, 1));
  description.ignores_merges = true;
  EXPECT_THAT(encode(*std::make_unique<BpeModel>(description), "aaa"), ElementsAre(3));
}

TEST_F(BpeOfAs, RefusesMergesThatAreNone) {
  const auto refused = [](const BpeDescription& description, const std::string& text) {
    expect_throws<CheckError>([&] { BpeModel model(description); }, {text});
  };
  BpeDescription twice = doubling(1), part = twice, result = twice;
  twice.merges.emplace_back("a", "a");
  refused(twice, "made: the merge \"a a\" occurs twice");
  part.merges.emplace_back("a", "b");
  refused(part, "made: merge 1, \"a b\": the vocabulary has no token \"b\"");
  result.merges.emplace_back("aa", "a");
  refused(result, "has no token \"aaa\"");
}

TEST(Utf8, ReplacesMaximalIllFormedParts) {
  const auto fixed = [](const std::string& text) {
    std::string buffer;
    return std::string(well_formed_utf8(text, buffer));
  };
  const std::string r = "\xef\xbf\xbd";
  EXPECT_EQ(fixed("plain é中😀"), "plain é中😀");
  EXPECT_EQ(fixed("a\xff"
                  "b\x80"),
            "a" + r + "b" + r);
  EXPECT_EQ(fixed("\xc3"), r);  // cut
  EXPECT_EQ(fixed("\xe2\x82"
                  "x"),
            r + "x");  // one part
  EXPECT_EQ(fixed("\xf0\x9f\x98"), r);
  EXPECT_EQ(fixed("\xc0\xaf"), r + r);  // overlong
  EXPECT_EQ(fixed("\xe0\x80\x80"), r + r + r);
  EXPECT_EQ(fixed("\xf0\x80\x80\x80"), r + r + r + r);
  EXPECT_EQ(fixed("\xed\xa0\x80"), r + r + r);          // a surrogate
  EXPECT_EQ(fixed("\xf4\x90\x80\x80"), r + r + r + r);  // above U+10FFFF
  EXPECT_EQ(fixed("\xf4\x8f\xbf\xbf"), "\xf4\x8f\xbf\xbf");
  EXPECT_EQ(fixed("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf"
                  "A"),
            r + r + r + r + "A");
}

TEST(Utf8, DoesNotCopyWhatIsWellFormed) {
  const std::string text = "é";
  std::string buffer;
  EXPECT_EQ(well_formed_utf8(text, buffer).data(), text.data());
}

TEST(ByteAlphabet, HasALetterForEveryByte) {
  EXPECT_EQ(letter_of('a'), "a");
  EXPECT_EQ(letter_of(' '), "Ġ");
  EXPECT_EQ(letter_of('\n'), "Ċ");
  std::string letters, bytes;
  for (int byte = 0; byte < 256; ++byte) {
    letters += letter_of(static_cast<unsigned char>(byte));
    bytes.push_back(static_cast<char>(byte));
  }
  EXPECT_EQ(bytes_of_letters(letters), bytes);
  for (const std::string other : {" ", "\u0144", "中", "\xc4"})
    EXPECT_EQ(bytes_of_letters(other), std::nullopt) << other;
}

std::vector<std::string> pieces_of(const std::string& pattern, const std::string& text) {
  std::vector<std::string> pieces;
  SplitPattern(pattern).split(text,
                              [&](std::string_view piece, bool) { pieces.emplace_back(piece); });
  return pieces;
}

TEST(SplitPattern, CutsIntoMatchesAndWhatIsBetween) {
  EXPECT_THAT(pieces_of("b+", "abbcb"), ElementsAre("a", "bb", "c", "b"));
  EXPECT_THAT(pieces_of("x", "aé"), ElementsAre("aé"));
  EXPECT_THAT(pieces_of("\\p{N}", "1é٣"), ElementsAre("1", "é", "٣"));
  EXPECT_THAT(pieces_of("b*", "abé"), ElementsAre("a", "b", "é"));  // it also matches nothing
  EXPECT_THAT(pieces_of("x", ""), ElementsAre());
}

// The pieces are those of Python's tokenizers 0.23.3. PCRE2 reads each of these patterns otherwise.
TEST(SplitPattern, ReadsPatternsAsPythonsTokenizersDo) {
  EXPECT_THAT(pieces_of("\\p{N}{1,3}+", "1234567"), ElementsAre("1234567"));
  EXPECT_THAT(pieces_of("[\\p{L}&&[^\\p{Han}]]+", "ab中c"), ElementsAre("ab", "中", "c"));
  EXPECT_THAT(pieces_of("\\h+", "12 xyz"), ElementsAre("12", " xyz"));
  EXPECT_THAT(pieces_of("\\w+", "e\u0301 a"), ElementsAre("e\u0301", " ", "a"));
  EXPECT_THAT(pieces_of("\\s", "a\u180e"), ElementsAre("a\u180e"));
  EXPECT_THAT(pieces_of(" ?[^(\\s|[.,!?…。，、।۔،])]+", "Hello, world (x)"),  // BLOOM's
              ElementsAre("Hello", ",", " world", " (", "x", ")"));
}

TEST(SplitPattern, RefusesWhatIsNoPatternOrTakesForever) {
  expect_throws<CheckError>([] { SplitPattern("(a"); }, {"pattern (a is not"});
  expect_throws<CheckError>([] { pieces_of("(a*)*b|(a|aa)+$", std::string(40, 'a') + "c"); },
                            {"retry-limit"});
}

TEST(AddedTokenSearch, TakesTheLeftmostAndOfThoseTheLongest) {
  const AddedTokenSearch search({{.id = 0, .content = "ab"},
                                 {.id = 1, .content = "abc"},
                                 {.id = 2, .content = "bcd"},
                                 {.id = 3, .content = "é"}});
  std::string found;
  search.split(
      "xabcdabbcdéab", [&](std::string_view text) { found += concat("(", text, ")"); },
      [&](std::uint32_t id, std::string_view text) { found += concat(id, "=", text, " "); });
  EXPECT_EQ(found, "(x)1=abc (d)0=ab 2=bcd 3=é 0=ab ");
}

TEST(TokenList, HoldsMoreThan65536Tokens) {
  for (const std::int64_t vocab_size : {65536, 65537}) {
    TokenList tokens(vocab_size);
    tokens.push_back(static_cast<std::uint32_t>(vocab_size - 1));
    EXPECT_EQ(tokens[0], vocab_size - 1);
    EXPECT_EQ(tokens.visit([](auto list) { return sizeof(list[0]); }), vocab_size > 65536 ? 4 : 2);
  }
}

}  // namespace
}  // namespace ladder
