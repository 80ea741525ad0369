// What a learner is told, and in which order, on 1, 2 and 3 ranks.
#include "common/testing/examination.hpp"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>

#include "common/testing/rank_test.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class ExaminationTest : public ::testing::Test, protected RankTest {
 protected:
  // "rank 1: what", or just "what" on a single rank.
  std::string of_rank(int rank, const std::string& what) const {
    return size_ > 1 ? concat("rank ", rank, ": ", what) : what;
  }

  const int last_ = size_ - 1;
  Examination examination_{comm_};
};

TEST_F(ExaminationTest, FindsNothingWrongInWhatIsRight) {
  examination_.examine("a sum", [&](Communicator& comm) {
    const at::Tensor sum = at::full({3}, 1.0F);
    comm.all_reduce(sum)->wait();
    examination_.expect("the sum", sum, at::full({3}, float(size_)));
    examination_.expect("a number", 0.1, 0.1);
    examination_.expect("a count", 2, 2);
    examination_.expect_error("this", {"rank", "7"}, [] { throw CheckError("rank 7"); });
  });
  EXPECT_THAT(examination_.faults(), IsEmpty());
}

// One rank throws after the others have found more faults than it has.
TEST_F(ExaminationTest, SaysFirstWhatWasThrown) {
  examination_.examine("a check", [&](Communicator& comm) {
    if (rank_ == last_) throw CheckError("thrown here");
    examination_.fault("first");
    examination_.fault("second");
    comm.barrier();
  });
  const std::vector<std::string>& faults = examination_.faults();
  EXPECT_EQ(faults[0], of_rank(last_, "a check: thrown here"));
  if (size_ == 1) return;
  EXPECT_THAT(faults[1], StartsWith("rank 0: a check: the ranks do not do the same"));
  EXPECT_THAT(faults[1], HasSubstr(concat("rank ", last_, ": nothing more;")));
  EXPECT_EQ(faults[2], "rank 0: first");
  EXPECT_EQ(faults[3], "rank 0: second");
  EXPECT_EQ(faults.size(), 4u);
}

TEST_F(ExaminationTest, SaysOnceWhatAllRanksSay) {
  for (int i = 0; i < 2; ++i) {
    examination_.examine("a check", [&](Communicator&) { throw CheckError("two\nlines"); });
  }
  EXPECT_THAT(examination_.faults(), ElementsAre(of_rank(0, "a check: two lines")));
}

TEST_F(ExaminationTest, GivesTheLinesOfTheRankThatFoundMost) {
  examination_.examine("a check", [&](Communicator&) {
    for (int i = 0; i <= rank_; ++i) examination_.fault(concat("fault ", i));
  });
  EXPECT_EQ(examination_.faults().size(), static_cast<std::size_t>(size_));
  EXPECT_EQ(examination_.faults()[0], of_rank(last_, "fault 0"));
}

// Here each rank is a group, and only the last one finds anything.
TEST_F(ExaminationTest, WhatAGroupHasFoundIsSaidOnEveryRank) {
  const std::unique_ptr<Communicator> group = comm_.split(rank_, 0);
  Examination of_group(*group);
  of_group.begin_faults_with("alone: ");
  for (const int check : {1, 2}) {
    of_group.examine("a check", [&](Communicator&) {
      if (rank_ == last_) of_group.fault(concat("fault ", check));
    });
  }
  EXPECT_THAT(faults_of_groups(of_group.faults(), comm_),
              ElementsAre("alone: fault 1", "alone: fault 2"));
  EXPECT_THAT(faults_of_groups({}, comm_), ::testing::IsEmpty());
}

TEST_F(ExaminationTest, TheFirstLevelWithFaultsIsTheLast) {
  int num_judged = 0;
  const auto level = [&](const std::string& name, const std::vector<std::string>& faults) {
    return Level{name, [&num_judged, faults] {
                   ++num_judged;
                   return faults;
                 }};
  };
  EXPECT_THAT(faults_in_levels(
                  {level("sums", {}), level("order", {"one", "two"}), level("memory", {"three"})}),
              ElementsAre("level 2 of 3, order: one", "level 2 of 3, order: two"));
  EXPECT_EQ(num_judged, 2);
  EXPECT_THAT(faults_in_levels({level("sums", {})}), IsEmpty());
}

TEST_F(ExaminationTest, SaysWhatToLookForIfOnlyRoundingDiffers) {
  const at::Tensor thirds = at::full({2}, 1.0F / 3);
  const at::Tensor sums = at::full({100}, 16.0, at::kBFloat16);
  sums[7] = 16.125;  // the next bf16
  examination_.examine("rounding", [&](Communicator&) {
    examination_.expect("a number", 1.0, 1.0000000000000018);
    examination_.expect("a tensor", thirds * 3.00001, at::full({2}, 1.0F));
    examination_.expect("another number", 1.0, 1.5);
    examination_.expect("another tensor", thirds, at::full({2}, 1.0F));
    examination_.expect("not a number", -std::nan(""), 1.0);
    examination_.expect("16 bits", sums, at::full({100}, 16.0, at::kBFloat16));
  });
  const auto mentions_rounding = HasSubstr("equal up to rounding: look for additions in another");
  EXPECT_THAT(
      examination_.faults(),
      ElementsAre(AllOf(HasSubstr("a number is 1, not 1.0000000000000018;"), mentions_rounding),
                  AllOf(HasSubstr("a tensor is 1.0000"), mentions_rounding),
                  EndsWith("another number is 1, not 1.5"),
                  AllOf(HasSubstr("another tensor is 0.333"), Not(mentions_rounding)),
                  EndsWith("not a number is nan, not 1"),
                  AllOf(HasSubstr("16 bits is 16.125, not 16 (element 7;"), mentions_rounding)));
}

TEST_F(ExaminationTest, TensorsThatCannotBeComparedAreFaults) {
  examination_.examine("tensors", [&](Communicator&) {
    examination_.expect("a gradient", at::Tensor(), at::full({2}, 1.0F));
    examination_.expect("a sum", at::full({3}, 1.0F), at::full({2}, 1.0F));
    examination_.expect("a norm", at::full({2}, 1.0F), at::full({2}, 1.0, at::kDouble));
  });
  EXPECT_THAT(examination_.faults(), ElementsAre(EndsWith("a gradient is undefined"),
                                                 EndsWith("a sum is Float[3], not Float[2]"),
                                                 EndsWith("a norm is Float[2], not Double[2]")));
}

TEST_F(ExaminationTest, ErrorsMustBeThrownAndSayEnough) {
  examination_.examine("errors", [&](Communicator&) {
    examination_.expect_error("nothing", {}, [] {});
    examination_.expect_error("little", {"rank", "7"}, [] { throw CheckError("rank 5"); });
  });
  EXPECT_THAT(examination_.faults(),
              ElementsAre(EndsWith("nothing says nothing; expected a CheckError"),
                          EndsWith("little says 'rank 5', without '7'")));
}

TEST_F(ExaminationTest, WhatIsNotWrittenYetIsSaidOnce) {
  const auto write_me = [] { throw CheckError("not implemented: step0: f()"); };
  examination_.examine("a check", [&](Communicator&) { write_me(); });
  examination_.examine("a call",
                       [&](Communicator&) { examination_.expect_error("f()", {}, write_me); });
  examination_.examine("another", [&](Communicator&) { write_me(); });
  EXPECT_THAT(examination_.faults(), ElementsAre(of_rank(0, "not implemented: step0: f()")));
}

TEST_F(ExaminationTest, TypesThatDoNotFitAreExplained) {
  examination_.examine("parameters in bf16", [&](Communicator&) {
    at::full({2}, 1.0, at::kBFloat16).lerp(at::full({2}, 1.0F), 0.5);
  });
  EXPECT_THAT(
      examination_.faults(),
      ElementsAre(AllOf(StartsWith(of_rank(0, "parameters in bf16: a tensor in bf16 meets")),
                        HasSubstr("one in fp32"), HasSubstr("libtorch"))));
}

// Libraries say little: what it usually means comes first.
TEST_F(ExaminationTest, WhatLibrariesThrowBecomesASentence) {
  const std::map<std::string, std::int64_t> empty;
  const auto minus_one = static_cast<std::size_t>(-1);
  const std::vector<std::pair<std::string, std::function<void()>>> acts = {
      {"more elements than any can: is their number negative",
       [&] { std::vector<std::int64_t>().reserve(minus_one); }},
      {"that the container does not have: is the index too large, or the key unknown",
       [&] { static_cast<void>(empty.at("a")); }},
      {"that holds none", [] { std::function<void()>()(); }},
      {"that holds no value", [] { static_cast<void>(std::optional<int>().value()); }},
      {"a view reaches beyond the memory",
       [] { at::full({2}, 1.0F).as_strided({4}, {1}, 0).sum(); }},
      {"a tensor without a value", [] { at::Tensor().sum(); }},
      {"an exception of its own; an error here is a CheckError",
       [] { throw std::runtime_error("a word"); }},
      {"no std::exception", [] { throw 1; }}};
  for (const auto& [sentence, act] : acts) {
    Examination examination(comm_);
    examination.examine("a check", [&](Communicator&) { act(); });
    EXPECT_THAT(examination.faults(), ElementsAre(HasSubstr(sentence)));
  }
}

TEST_F(ExaminationTest, IntegersAreShownWithAllDigits) {
  const at::Tensor large = at::full({3}, (std::int64_t{1} << 60) + 1, at::kLong);
  examination_.examine("integers",
                       [&](Communicator&) { examination_.expect("a sum", large, large - 1); });
  EXPECT_THAT(examination_.faults(),
              ElementsAre(EndsWith("a sum is 1152921504606846977, not 1152921504606846976 (element "
                                   "0; 3 of 3 differ)")));
}

// The errors of libtorch include a stack trace.
TEST_F(ExaminationTest, StackTracesAreLeftOut) {
  examination_.examine("libtorch", [&](Communicator&) { at::Tensor().sum(); });
  EXPECT_EQ(examination_.faults().size(), 1u);
  EXPECT_THAT(examination_.faults(), Not(::testing::Contains(HasSubstr("frame #"))));
}

}  // namespace
}  // namespace ladder
