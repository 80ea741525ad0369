#include "step9_diloco/elastic/seal.hpp"

#include <gtest/gtest.h>

namespace ladder {
namespace {

const CurveKeys kKeys = {"public", "secret"}, kOthers = {"public", "another secret"};

TEST(Seal, OpensWhatTheSameKeyHasSealedUnderTheSameName) {
  for (const Seal& seal : {Seal(), Seal(kKeys)}) {
    for (const std::string text : {"", "x", "a longer text"}) {
      EXPECT_EQ(seal.open("vote/1", seal.seal("vote/1", text)), text);
      EXPECT_EQ(seal.open("vote/2", seal.seal("vote/1", text)), std::nullopt);
      EXPECT_EQ(seal.open("vote/", seal.seal("vote/1", text)), std::nullopt);
    }
    EXPECT_NE(seal.open("ab", seal.seal("a", "b")), "");
  }
  // As compare_set needs it: the same text has the same bytes.
  EXPECT_EQ(Seal(kKeys).seal("a", "b"), Seal(kKeys).seal("a", "b"));
}

TEST(Seal, AnyOtherByteIsNoticed) {
  const Seal seal(kKeys);
  const std::string good = seal.seal("decision", "commit");
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] ^= 1;
    EXPECT_EQ(seal.open("decision", bad), std::nullopt) << i;
    EXPECT_EQ(seal.open("decision", good.substr(0, i)), std::nullopt) << i;
  }
  EXPECT_EQ(seal.open("decision", good + "!"), std::nullopt);
}

TEST(Seal, OtherKeysOpenNothing) {
  EXPECT_EQ(Seal(kOthers).open("a", Seal(kKeys).seal("a", "b")), std::nullopt);
  EXPECT_EQ(Seal(kKeys).open("a", Seal().seal("a", "b")), std::nullopt);
  EXPECT_EQ(Seal().open("a", Seal(kKeys).seal("a", "b")), std::nullopt);
}

}  // namespace
}  // namespace ladder
