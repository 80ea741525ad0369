// A planted mistake that the grader of an exercise must find.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/comm/communicator.hpp"

namespace ladder {

template <class Attempt>
struct WrongAnswer {
  std::string name;
  Attempt attempt;
  int min_ranks;          // to show the mistake
  std::string reason;     // part of a line that the grader prints
  std::string only = {};  // if given, part of every line: no other check finds it
};

// Expects that `faults`, the grader's lines on this answer, contain its reason if the ranks are at
// least min_ranks, nothing else if only one check may find it, and the same number of lines on
// every rank. Collective.
template <class Attempt>
void expect_rejected(const WrongAnswer<Attempt>& wrong, const std::vector<std::string>& faults,
                     Communicator& comm) {
  if (comm.size() >= wrong.min_ranks) {
    EXPECT_THAT(faults, ::testing::Contains(::testing::HasSubstr(wrong.reason))) << wrong.name;
  }
  if (!wrong.only.empty()) {
    EXPECT_THAT(faults, ::testing::Each(::testing::HasSubstr(wrong.only))) << wrong.name;
  }
  const auto num_faults = static_cast<double>(faults.size());
  EXPECT_EQ(all_reduce_sum(num_faults, comm), comm.size() * num_faults) << wrong.name;
}

}  // namespace ladder
