#include "common/data/dataset.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "common/core/check.hpp"
#include "common/data/tokenizer.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/rows_as_text.hpp"
#include "common/testing/temp_folder.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::vector<std::int64_t> values(const at::Tensor& tensor) {
  const auto* data = tensor.const_data_ptr<std::int64_t>();
  return {data, data + tensor.numel()};
}

Microbatch read(const Dataset& dataset, std::vector<std::int64_t> indices) {
  return dataset.read(indices);
}

class DatasetTest : public ::testing::Test {
 protected:
  DataOptions options(const std::string& name, const std::string& bytes, std::int64_t context) {
    DataOptions options;
    options.source = folder_.write(name, bytes);
    options.context = context;
    return options;
  }
  template <class Error>
  void expect_refused(const DataOptions& options, const std::string& text,
                      const std::string& text2 = "") {
    expect_throws<Error>([&] { Dataset::open_training(options); }, {options.source, text, text2});
  }

  TempFolder folder_;
};

TEST_F(DatasetTest, WindowsOfText) {
  const Dataset dataset = Dataset::open_training(options("a.txt", "abcdefgh", 3));
  EXPECT_EQ(dataset.num_tokens(), 9);
  EXPECT_EQ(dataset.num_samples(), 2);  // a third window would lack its last target
  EXPECT_EQ(dataset.vocab_size(), 258);
  EXPECT_EQ(dataset.tokenizer(), "bytes");
  const Microbatch microbatch = read(dataset, {1, 0, 1});
  EXPECT_EQ(microbatch.tokens.sizes(), at::IntArrayRef({3, 3}));
  EXPECT_EQ(microbatch.tokens.scalar_type(), at::kLong);
  EXPECT_THAT(rows_as_text(microbatch.tokens), ElementsAre("def", "abc", "def"));
  EXPECT_THAT(rows_as_text(microbatch.targets), ElementsAre("efg", "bcd", "efg"));
  EXPECT_EQ(microbatch.num_targets, 9);
  EXPECT_THAT(microbatch.samples, ElementsAre(1, 0, 1));
  EXPECT_EQ(dataset.bytes_read(), 3 * 4 * 2);
}

TEST_F(DatasetTest, EveryDocumentIsCountedInTheWindowWhereItBegins) {
  const Dataset dataset = Dataset::open_training(
      options("a.jsonl", "{\"answer\":\"a\"}\n{\"answer\":\"bc\"}\n{\"answer\":\"defghij\"}\n", 3));
  EXPECT_EQ(dataset.num_documents(), 3);  // tokens: a . b c . d e f g h i j .
  std::vector<std::int64_t> counts;
  for (std::int64_t k = 0; k < dataset.num_samples(); ++k)
    counts.push_back(read(dataset, {k}).num_documents);
  EXPECT_THAT(counts, ElementsAre(2, 1, 0, 0));
  EXPECT_EQ(read(dataset, {1, 0, 3, 1}).num_documents, 4);
}

TEST_F(DatasetTest, WindowsOfWideTokens) {
  std::string bytes = bytes_of<std::int32_t>({20240801, 7, 5});
  bytes.resize(1024);
  DataOptions wide = options("a.bin", bytes + bytes_of<std::uint32_t>({100000, 1, 2, 3, 4}), 2);
  wide.vocab_size = 100001;
  const Dataset dataset = Dataset::open_training(wide);
  EXPECT_EQ(dataset.num_samples(), 2);
  EXPECT_EQ(dataset.vocab_size(), 100001);
  EXPECT_EQ(dataset.tokenizer(), "token file");
  const Microbatch microbatch = read(dataset, {0, 1});
  EXPECT_THAT(values(microbatch.tokens), ElementsAre(100000, 1, 2, 3));
  EXPECT_THAT(values(microbatch.targets), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(dataset.bytes_read(), 2 * 3 * 4);
}

TEST_F(DatasetTest, DocumentsArePaddedAndCut) {
  DataOptions rows = options(
      "a.jsonl",
      "{\"answer\":\"ab\"}\n{\"answer\":\"\"}\n{\"answer\":\"cdefgh\"}\n{\"answer\":\"ijkl\"}\n",
      4);
  rows.rows = Rows::kDocuments;
  const Dataset dataset = Dataset::open_training(rows);
  EXPECT_EQ(dataset.num_samples(), 4);
  const Microbatch microbatch = read(dataset, {0, 1, 2, 3});
  EXPECT_THAT(rows_as_text(microbatch.tokens),
              ElementsAre("ab__", "____", "cdef", "ijkl"));  // one token has nothing to predict
  EXPECT_THAT(rows_as_text(microbatch.targets), ElementsAre("b.__", "____", "defg", "jkl."));
  EXPECT_EQ(microbatch.tokens[1][0].item<std::int64_t>(), ByteTokenizer::kPadding);
  EXPECT_EQ(microbatch.targets[1][0].item<std::int64_t>(), kIgnoredTarget);
  EXPECT_EQ(microbatch.num_targets, 2 + 0 + 4 + 4);
  EXPECT_EQ(microbatch.num_documents, 3);  // one has nothing to predict
  EXPECT_EQ(dataset.num_documents(), 4);
  EXPECT_EQ(dataset.bytes_read(), (3 + 1 + 5 + 5) * 2);
  EXPECT_THAT(dataset.description(), HasSubstr("1 documents cut"));
}

TEST_F(DatasetTest, WhatHasNothingToPredictIsRefusedAtTheStart) {
  const std::string nothing = "{\"answer\":\"\"}\n", something = "{\"answer\":\"a\"}\n";
  DataOptions rows = options("a.jsonl", "\n" + nothing + nothing, 4);
  rows.rows = Rows::kDocuments;
  expect_refused<CheckError>(rows, "each of its 2 documents is empty", "a.jsonl:2");
  rows.source = folder_.write("b.jsonl", nothing + something);
  EXPECT_EQ(read(Dataset::open_training(rows), {0}).num_targets, 0);
  // Only what an evaluation reads of validation data is looked at.
  rows.validation_source = rows.source;
  rows.validation_samples = 1;
  expect_throws<CheckError>([&] { Dataset::open_validation(rows); }, {"--val-data", "b.jsonl:1"});
  for (const std::int64_t all : {0, 2}) {
    rows.validation_samples = all;
    EXPECT_EQ(Dataset::open_validation(rows).num_samples(), 2);
  }
}

TEST_F(DatasetTest, TheCorpusHasItsOwnValidationAndAFileHasNone) {
  DataOptions options;
  const Dataset training = Dataset::open_training(options);
  const Dataset validation = Dataset::open_validation(options);
  EXPECT_GT(training.num_samples(), 10 * validation.num_samples());
  EXPECT_GT(validation.num_samples(), 128);
  EXPECT_THAT(training.description(), AllOf(HasSubstr("corpus"), HasSubstr("windows of 128")));
  options.source = folder_.write("a.txt", "text");
  EXPECT_EQ(Dataset::open_validation(options).num_samples(), 0);
  EXPECT_EQ(Dataset::open_validation(options).description(), "none");
  options.validation_source = "corpus";
  EXPECT_EQ(Dataset::open_validation(options).num_tokens(), validation.num_tokens());
}

TEST_F(DatasetTest, TheSourceHashNamesWhatWasReadHoweverItIsCut) {
  const std::string lines = "{\"answer\":\"ab\"}\n{\"answer\":\"cdefgh\"}\n";
  const auto hash = [](const DataOptions& options) {
    return Dataset::open_training(options).source_hash();
  };
  DataOptions documents = options("a.jsonl", lines, 3);
  const std::string wanted = hash(documents);
  EXPECT_THAT(wanted, MatchesRegex("[0-9a-f]{32}"));
  documents.rows = Rows::kDocuments;
  documents.context = 5;
  EXPECT_EQ(hash(documents), wanted);
  for (const char* other : {"{\"answer\":\"ab\"}\n{\"answer\":\"cdefgx\"}\n",
                            "{\"answer\":\"cdefgh\"}\n{\"answer\":\"ab\"}\n",
                            "{\"answer\":\"a\"}\n{\"answer\":\"bcdefgh\"}\n"})
    EXPECT_NE(hash(options("b.jsonl", other, 3)), wanted) << other;
}

TEST_F(DatasetTest, TheContentHashNamesWhatTheSamplesSay) {
  const std::string lines = "{\"answer\":\"ab\"}\n{\"answer\":\"cdefgh\"}\n";
  const auto hash = [](const DataOptions& options) {
    return Dataset::open_training(options).content_hash();
  };
  const DataOptions windows = options("a.jsonl", lines, 3);
  EXPECT_THAT(hash(windows), MatchesRegex("[0-9a-f]{32}"));
  DataOptions same = options("other name.jsonl", "\n" + lines, 3);
  same.microbatch_size = 7;
  same.seed = 9;
  same.order = SampleOrder::kSequential;
  EXPECT_EQ(hash(same), hash(windows));

  DataOptions documents = windows;
  documents.rows = Rows::kDocuments;
  DataOptions corpus_pairs, corpus_documents;
  corpus_pairs.rows = Rows::kPairs;
  corpus_documents.rows = Rows::kDocuments;
  const std::set<std::string> hashes = {
      hash(windows),
      hash(documents),
      hash(options("b.jsonl", lines, 4)),
      hash(options("c.jsonl", "{\"answer\":\"ab\"}\n{\"answer\":\"cdefgi\"}\n", 3)),
      hash(options("d.jsonl", lines + "{\"answer\":\"\"}\n", 3)),
      hash(options("a.txt", "abcdefgh", 3)),
      hash(corpus_pairs),
      hash(corpus_documents),
      hash(DataOptions{}),
      Dataset::open_validation({}).content_hash(),
      Dataset::open_validation(windows).content_hash()};
  EXPECT_EQ(hashes.size(), 11u);
}

// 7, 0, 9, 0 in two bytes each are the bytes of 7, 9 in four.
TEST_F(DatasetTest, TheContentHashKnowsHowWideTokensAre) {
  DataOptions narrow = options("a.bin", bytes_of<std::uint16_t>({7, 0, 9, 0}), 1);
  narrow.vocab_size = 100;
  std::string header = bytes_of<std::int32_t>({20240801, 7, 2});
  header.resize(1024);
  DataOptions wide = options("b.bin", header + bytes_of<std::uint32_t>({7, 9}), 1);
  wide.vocab_size = 100;
  EXPECT_NE(Dataset::open_training(narrow).content_hash(),
            Dataset::open_training(wide).content_hash());
}

TEST_F(DatasetTest, RefusesWhatIsTooShort) {
  expect_refused<CheckError>(options("a.txt", "abc", 4), "4 tokens", "--context 4 takes 5");
  EXPECT_NO_THROW(Dataset::open_training(options("a.txt", "abcd", 4)));
  EXPECT_THROW(Dataset::open_training(options("a.txt", "abcd", 0)), UsageError);
  const Dataset dataset = Dataset::open_training(options("a.txt", "abcd", 4));
  EXPECT_THROW(read(dataset, {1}), CheckError);
  EXPECT_THROW(read(dataset, {-1}), CheckError);
}

TEST_F(DatasetTest, RefusesOptionsThatDoNotFitTheFile) {
  DataOptions text = options("a.txt", "abcd", 2);
  text.vocab_size = 257;
  expect_refused<UsageError>(text, "--vocab-size 257 does not fit", "258");
  for (const std::int64_t enough : {258, 300}) {
    text.vocab_size = enough;
    EXPECT_EQ(Dataset::open_training(text).vocab_size(), 258);
  }
  text.rows = Rows::kDocuments;
  expect_refused<UsageError>(text, "--rows documents", ".txt");
  DataOptions tokens = options("a.bin", "abcdefgh", 2);
  expect_refused<UsageError>(tokens, "--vocab-size is 0");
  tokens.vocab_size = 65536;
  EXPECT_NO_THROW(Dataset::open_training(tokens));
  tokens.rows = Rows::kDocuments;
  expect_refused<UsageError>(tokens, "--rows documents", ".bin");
  expect_refused<UsageError>(options("a.csv", "a,b", 1), ".jsonl", ".bin");
  expect_refused<UsageError>(options("noextension", "a,b", 1), "--data");
}

}  // namespace
}  // namespace ladder
