#include "common/data/preference_pairs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "common/core/check.hpp"
#include "common/data/batch_stream.hpp"
#include "common/data/bpe/bpe_tokenizer.hpp"
#include "common/data/corpus/corpus.hpp"
#include "common/data/dataset.hpp"
#include "common/data/tokenizer.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/rows_as_text.hpp"
#include "common/testing/temp_folder.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::string pair(const std::string& prompt, const std::string& chosen, const std::string& rejected,
                 const std::string& more = "") {
  return concat("{\"prompt\": \"", prompt, "\", \"chosen\": \"", chosen, "\", \"rejected\": \"",
                rejected, "\"", more, "}");
}

constexpr const char* kTwoPairs =
    "{\"prompt\": \"ask\", \"chosen\": \"right\", \"rejected\": \"no\"}\n"
    "\n"
    "{\"rejected\": \"x\", \"other\": {\"prompt\": 1}, \"chosen\": \"\", \"prompt\": \"\"}\r\n";

class PreferencePairsTest : public ::testing::Test {
 protected:
  DataOptions options(const std::string& lines, std::int64_t context) {
    return {.source = folder_.write("a.jsonl", lines), .rows = Rows::kPairs, .context = context};
  }
  Microbatch read(const std::string& lines, std::int64_t context,
                  const std::vector<std::int64_t>& indices) {
    return Dataset::open_training(options(lines, context)).read(indices);
  }
  void expect_refused(const std::string& lines, const std::string& place, const std::string& text) {
    expect_throws<CheckError>(
        [&] { read_jsonl_pairs(folder_.write("a.jsonl", lines), tokenizer_); },
        {"a.jsonl" + place, text});
  }

  TempFolder folder_;
  ByteTokenizer tokenizer_;
};

TEST_F(PreferencePairsTest, ChosenRowsThenRejectedOnesWithOnlyAnswersAsTargets) {
  const Dataset dataset = Dataset::open_training(options(kTwoPairs, 10));
  EXPECT_EQ(dataset.num_samples(), 2);
  EXPECT_EQ(dataset.num_documents(), 2);
  EXPECT_EQ(dataset.num_tokens(), (4 + 6 + 3) + (1 + 1 + 2));
  EXPECT_EQ(dataset.tokenizer(), "bytes");
  EXPECT_EQ(dataset.vocab_size(), 258);
  const Microbatch pairs = dataset.read(std::vector<std::int64_t>{0, 1});
  EXPECT_THAT(rows_as_text(pairs.tokens), ElementsAre("ask\nright_", "\n_________",  //
                                                      "ask\nno____", "\nx________"));
  EXPECT_THAT(rows_as_text(pairs.targets), ElementsAre("___right._", "._________",  //
                                                       "___no.____", "x.________"));
  EXPECT_EQ(pairs.tokens.scalar_type(), at::kLong);
  EXPECT_EQ(pairs.num_targets, (6 + 1) + (3 + 2));
  EXPECT_EQ(pairs.num_documents, 2);
  EXPECT_THAT(pairs.samples, ElementsAre(0, 1));
  EXPECT_THROW(dataset.read(std::vector<std::int64_t>{2}), CheckError);
  EXPECT_EQ(dataset.bytes_read(), 2 * ((10 + 2) + (7 + 3)));
  EXPECT_THAT(dataset.description(), HasSubstr("a.jsonl: 2 pairs, 17 tokens (bytes, vocabulary "
                                               "258), 4 rows of 10, 0 pairs cut to fit"));
}

// Prompt and newline have 4 tokens, the answers with their end-of-text tokens 6 and 3. An answer that
// is still too long loses its end.
TEST_F(PreferencePairsTest, APromptIsCutFromTheLeftForEachAnswerUpToTheNewline) {
  using Lines = std::vector<std::string>;
  const std::vector<Lines> wanted = {{"\n", "\n", "r", "n"},
                                     {"\nr", "\nn", "ri", "no"},
                                     {"\nri", "\nno", "rig", "no."},
                                     {"\nrig", "k\nno", "righ", "_no."},
                                     {"\nrigh", "sk\nno", "right", "__no."},
                                     {"\nright", "ask\nno", "right.", "___no."},
                                     {"k\nright", "ask\nno_", "_right.", "___no._"},
                                     {"sk\nright", "ask\nno__", "__right.", "___no.__"},
                                     {"ask\nright", "ask\nno___", "___right.", "___no.___"}};
  for (std::int64_t context = 1; context <= std::ssize(wanted); ++context) {
    const Microbatch pair = read(kTwoPairs, context, {0});
    EXPECT_EQ(pair.num_targets,
              std::min<std::int64_t>(6, context) + std::min<std::int64_t>(3, context));
    Lines lines = rows_as_text(pair.tokens);
    for (const std::string& line : rows_as_text(pair.targets)) lines.push_back(line);
    EXPECT_EQ(lines, wanted[static_cast<std::size_t>(context) - 1]);
  }
}

TEST_F(PreferencePairsTest, CountsThePairsThatAreCut) {
  const auto num_cut = [&](std::int64_t context) {
    return Dataset::open_training(options(kTwoPairs, context)).description();
  };
  EXPECT_THAT(num_cut(9), HasSubstr("4 rows of 9, 0 pairs cut"));
  EXPECT_THAT(num_cut(8), HasSubstr("4 rows of 8, 1 pairs cut"));  // only the chosen row is
  EXPECT_THAT(num_cut(2), HasSubstr("1 pairs cut"));
  EXPECT_THAT(num_cut(1), HasSubstr("2 pairs cut"));
  EXPECT_THAT(Dataset::open_training(options(pair("ask", "no", "right"), 8)).description(),
              HasSubstr("1 pair, 13 tokens (bytes, vocabulary 258), 2 rows of 8, 1 pairs cut"));
}

TEST_F(PreferencePairsTest, RefusesALineWithItsNumber) {
  const std::string good = pair("p", "c", "r") + "\n\n";
  const auto members = "a preference pair has the strings \"prompt\", \"chosen\" and \"rejected\"";
  expect_refused(good + "{\"chosen\":\"c\",\"rejected\":\"r\"}", ":3", "has no \"prompt\"");
  expect_refused(good + "{\"prompt\":\"p\",\"rejected\":\"r\"}", ":3", "has no \"chosen\"");
  expect_refused("{\"prompt\":\"p\",\"chosen\":\"c\"}", ":1", "has no \"rejected\"");
  expect_refused("{\"question\":\"q\",\"answer\":\"a\"}", ":1", members);
  expect_refused("{\"prompt\":\"p\",\"chosen\":\"c\",\"rejected\":[\"r\"]}", ":1",
                 "\"rejected\" must be a string, but is of type array");
  expect_refused(good + pair("p", "same", "same"), ":3", "\"chosen\" and \"rejected\" are equal");
  expect_refused(good + pair("p", "", ""), ":3", "are equal");
  for (const char* member : {"\"weight\":2", "\"system\":\"S\"", "\"images\":[\"a\"]"})
    expect_refused(good + pair("p", "c", "r", concat(",", member)), ":3",
                   "would change what is learned");
  expect_refused("\n \n", "", "has no preference pairs");
}

TEST_F(PreferencePairsTest, OtherFilesHaveNoPairs) {
  for (const std::string kind : {".txt", ".bin"}) {
    DataOptions other = options(kTwoPairs, 2);
    other.validation_source = folder_.write("a" + kind, "abcdefgh");
    other.vocab_size = kind == ".bin" ? 65536 : 0;
    const auto refused = [&](const std::string& option) {
      return ThrowsMessage<UsageError>(
          AllOf(HasSubstr(option + " " + other.validation_source),
                HasSubstr("a " + kind + " file has no preference pairs"), HasSubstr("use a .jsonl"),
                HasSubstr("\"prompt\", \"chosen\" and \"rejected\""), HasSubstr("corpus")));
    };
    EXPECT_THAT([&] { Dataset::open_validation(other); }, refused("--val-data"));
    other.source = other.validation_source;
    EXPECT_THAT([&] { Dataset::open_training(other); }, refused("--data"));
  }
  DataOptions vocabulary = options(kTwoPairs, 2);
  vocabulary.vocab_size = 257;
  EXPECT_THROW(Dataset::open_training(vocabulary), UsageError);
}

TEST_F(PreferencePairsTest, TheCorpusHasRightAndWrongQueries) {
  std::set<std::string> seen;
  const DataOptions corpus{.rows = Rows::kPairs, .context = 1000};
  for (const auto split : {CorpusSplit::kTraining, CorpusSplit::kValidation}) {
    const auto documents = corpus_documents(split);
    const Dataset dataset = split == CorpusSplit::kTraining ? Dataset::open_training(corpus)
                                                            : Dataset::open_validation(corpus);
    ASSERT_EQ(dataset.num_samples(), static_cast<std::int64_t>(documents.size()));
    EXPECT_THAT(dataset.description(), HasSubstr(" 0 pairs cut"));
    for (std::int64_t k = 0; k < dataset.num_samples(); ++k) {
      const SqlDocument& document = documents[static_cast<std::size_t>(k)];
      const auto lines = rows_as_text(dataset.read(std::vector<std::int64_t>{k}).tokens);
      const auto row_of = [](std::string text) {
        text.resize(1000, '_');  // the end-of-text token is only a target
        return text;
      };
      ASSERT_EQ(lines[0], row_of(document.text()));
      ASSERT_EQ(lines[1],
                row_of(document.context + '\n' + document.question + '\n' + document.wrong_answer));
      ASSERT_NE(lines[0], lines[1]);
      ASSERT_TRUE(seen.insert(lines[0]).second);  // no pair is in both splits
    }
  }
}

TEST_F(PreferencePairsTest, AnAnswerThatEndsWithTheEndEndsOnce) {
  BpeTokenizer tokenizer(LADDER_SOURCE "/common/data/bpe/fixtures/tokenizer.json");
  TokenizedText pairs{TokenList(tokenizer.vocab_size())};
  append_pair("the", "cat<|endoftext|>", "", tokenizer, pairs);
  EXPECT_EQ(pairs.part_ends[1] - pairs.part_ends[0], std::ssize(tokenizer.encode("cat").ids()) + 1);
  EXPECT_EQ(pairs.part_ends[2] - pairs.part_ends[1], 1);
}

TEST_F(PreferencePairsTest, APromptBeginsAsADocumentDoes) {
  class Beginning : public ByteTokenizer {
    std::optional<std::uint32_t> begin_of_text() const override { return 257; }
  } tokenizer;
  TokenizedText pairs;
  append_pair("p", "c", "", tokenizer, pairs);
  EXPECT_THAT(pairs.tokens.ids(), ElementsAre(257, 'p', '\n', 'c', 256, 256));
  EXPECT_THAT(pairs.part_ends, ElementsAre(3, 5, 6));
}

TEST_F(PreferencePairsTest, AMicrobatchHasPairsAndAPairCountsAsOneRow) {
  DataOptions two = options(kTwoPairs, 10);
  two.microbatch_size = 2;
  BatchStream stream(two, whole_data(Tail::kDrop));
  EXPECT_EQ(stream.next()[0].tokens.size(0), 4);
  EXPECT_EQ(stream.counts().rows, 2);
}

TEST_F(PreferencePairsTest, TheContentHashNamesWhatThePairsSay) {
  const auto hash = [&](const char* prompt, const char* chosen, const char* rejected,
                        std::int64_t context = 8) {
    return Dataset::open_training(options(pair(prompt, chosen, rejected), context)).content_hash();
  };
  const std::set<std::string> hashes =
      {
          hash("p", "c", "r"),    hash("q", "c", "r"),   hash("p", "d", "r"),
          hash("p", "c", "s"),    hash("p", "r", "c"),   hash("p", "c", "r", 9),
          hash("pc", "", "r"),    hash("", "pc", "r"),   hash("p", "c", "r\\n"),
          hash("p\\nc", "", "r"), hash("p", "c\\n", "r")  // the same tokens, and another prompt
      };
  EXPECT_EQ(hashes.size(), 11u);
  EXPECT_EQ(hash("p", "c", "r"), hash("p", "c", "r"));
}

}  // namespace
}  // namespace ladder
