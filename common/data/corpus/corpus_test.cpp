#include "common/data/corpus/corpus.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <regex>
#include <set>
#include <string>

namespace ladder {
namespace {

class CorpusTest : public ::testing::Test {
 protected:
  static const std::vector<SqlDocument>& training() {
    static const auto documents = corpus_documents(CorpusSplit::kTraining);
    return documents;
  }
  static const std::vector<SqlDocument>& validation() {
    static const auto documents = corpus_documents(CorpusSplit::kValidation);
    return documents;
  }
};

TEST_F(CorpusTest,
       IsTheSameEverywhere) {  // FNV-1a over all texts; changes only if the corpus changes
  std::uint64_t hash = 14695981039346656037u;
  const auto add = [&](const std::string& text) {
    for (const char letter : text)
      hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211u;
  };
  for (const auto* documents : {&training(), &validation()}) {
    for (const SqlDocument& document : *documents)
      add(document.text() + '\n' + document.wrong_answer + '\n');
  }
  EXPECT_EQ(hash, 3318066671371727022u);
  EXPECT_EQ(corpus_documents(CorpusSplit::kValidation).back().text(), validation().back().text());
}

TEST_F(CorpusTest, NoDocumentTwiceAndNoneInBothSplits) {
  std::set<std::string> texts;
  for (const auto* documents : {&training(), &validation()}) {
    for (const SqlDocument& document : *documents)
      EXPECT_TRUE(texts.insert(document.text()).second) << document.text();
  }
}

TEST_F(CorpusTest, WrongAnswersAreWrongAndPlausible) {
  for (const SqlDocument& document : training()) {
    EXPECT_NE(document.wrong_answer, document.answer) << document.text();
    EXPECT_EQ(document.wrong_answer.rfind("SELECT ", 0), 0u);
    EXPECT_EQ(document.text(),
              document.context + "\n" + document.question + "\n" + document.answer);
  }
}

// Every table and column name in the answers is in the schema; every value in the correct answer is
// in the question.
TEST_F(CorpusTest, AnswersFollowFromSchemaAndQuestion) {
  const std::set<std::string> keywords = {"SELECT",  "DISTINCT", "COUNT", "AVG", "SUM",    "MIN",
                                          "MAX",     "FROM",     "JOIN",  "ON",  "WHERE",  "AND",
                                          "BETWEEN", "LIKE",     "GROUP", "BY",  "HAVING", "ORDER",
                                          "ASC",     "DESC",     "LIMIT"};
  const std::regex quoted("'%?([^'%]*)%?'");
  const std::regex word("[A-Za-z_]+");
  const std::regex number("[0-9]+");
  const auto begin = [](const std::string& text, const std::regex& regex) {
    return std::sregex_iterator(text.begin(), text.end(), regex);
  };
  const std::sregex_iterator end;
  for (const SqlDocument& document : validation()) {
    for (auto value = begin(document.answer, quoted); value != end; ++value) {
      EXPECT_NE(document.question.find((*value)[1].str()), std::string::npos) << document.text();
    }
    for (auto value = begin(document.answer, number); value != end; ++value) {
      EXPECT_NE(document.question.find(value->str()), std::string::npos) << document.text();
    }
    std::set<std::string> known = keywords;
    for (auto name = begin(document.context, word); name != end; ++name) known.insert(name->str());
    for (const std::string& answer : {document.answer, document.wrong_answer}) {
      const std::string names = std::regex_replace(answer, quoted, "");
      for (auto name = begin(names, word); name != end; ++name) {
        EXPECT_EQ(known.count(name->str()), 1u) << document.text();
      }
    }
  }
}

// The loss of a model that learns only byte frequencies.
TEST_F(CorpusTest, UnigramEntropyIsKnown) {
  std::array<double, 257> counts{};
  double total = 0;
  for (const SqlDocument& document : training()) {
    for (const char byte : document.text()) ++counts[static_cast<unsigned char>(byte)];
    ++counts[256];
    total += static_cast<double>(document.text().size() + 1);
  }
  double entropy = 0;
  for (const double count : counts) {
    if (count > 0) entropy -= count / total * std::log(count / total);
  }
  std::printf("%zu documents, %.0f tokens, unigram entropy %.4f nats a token\n", training().size(),
              total, entropy);
  EXPECT_NEAR(entropy, 3.5345, 0.0001);
}

}  // namespace
}  // namespace ladder
