#include "step9_diloco/elastic/report.hpp"

#include <gtest/gtest.h>

#include "common/core/check.hpp"

namespace ladder {
namespace {

TEST(Report, IsReadAsItWasWritten) {
  const Report report = {
      .beat = {.worker = 3,
               .epoch = 0xfedcba9876543210,
               .phase = Phase::kHealing,
               .request = 4,
               .last_ended = 3,
               .has_finished = true,
               .progress = 5,
               .last_quorum = {~0ULL, 8},
               .outer_steps = 6,
               .state_hash = "ab",
               .weight = 0.1,
               .address = "tcp://127.0.0.1:1",
               .missed = {1, 0xfedcba9876543210}},
      .number = 9,
      .rules = {.num_workers = 4, .min_workers = 2, .stale_s = 0.3, .join_timeout_s = 0.7},
      .fingerprint = "f",
      .round = {0xfedcba9876543211, 2},
      .vote = Vote::kAgainst,
      .is_leaving = true};
  EXPECT_EQ(parse_report(to_text(report)), report);
  Answer answer = {.number = 9, .lighthouse_epoch = ~0ULL, .refusal = "no"};
  EXPECT_EQ(parse_answer(to_text(answer)), answer);
  answer.decision = Decision::kCommit;
  answer.quorum = {
      .lighthouse_epoch = 0xfedcba9876543210,
      .id = 7,
      .outer_steps = 6,
      .members = {{.worker = 0, .epoch = 1, .state_hash = "x"},
                  {.worker = 2, .epoch = ~0ULL, .weight = 3, .has_finished = true, .donor = 0}}};
  EXPECT_EQ(parse_answer(to_text(answer)), answer);
}

TEST(Report, WhatIsNoneIsRefused) {
  const std::string good = to_text(Report{});
  parse_report(good);
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_THROW(parse_report(good.substr(0, length)), CheckError) << length;
  for (const char* text : {"", "7", "[]", "{}", "null", "{\"worker\":\"x\"}"}) {
    EXPECT_THROW(parse_report(text), CheckError) << text;
    EXPECT_THROW(parse_answer(text), CheckError) << text;
  }
  EXPECT_THROW(parse_report(std::string(2 << 20, ' ')), CheckError);
  EXPECT_THROW(parse_report(to_text(Report{.vote = static_cast<Vote>(3)})), CheckError);
  EXPECT_THROW(parse_report(to_text(Report{.beat = {.worker = -1}})), CheckError);
  EXPECT_THROW(parse_report(to_text(Report{.beat = {.weight = 0}})), CheckError);
}

}  // namespace
}  // namespace ladder
