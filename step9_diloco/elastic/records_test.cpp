#include "step9_diloco/elastic/records.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/check.hpp"

namespace ladder {
namespace {

TEST(Records, AreReadAsTheyWereWritten) {
  const BeatRecord beat = {
      .beat = {.worker = 3,
               .epoch = 0xfedcba9876543210,
               .phase = Phase::kHealing,
               .request = 4,
               .last_ended = 3,
               .has_finished = true,
               .progress = 5,
               .last_quorum = {1ULL << 53, 8},
               .outer_steps = 6,
               .state_hash = "ab",
               .weight = 0.1,
               .address = "tcp://127.0.0.1:1",
               .missed = {1, 0xfedcba9876543210}},
      .rules = {.num_workers = 4, .min_workers = 2, .stale_s = 0.3, .join_timeout_s = 0.7},
      .fingerprint = "f",
      .lighthouse_epoch = 0xfedcba9876543211,
      .number = 9,
      .is_leaving = true};
  EXPECT_EQ(parse_beat(to_text(beat)), beat);
  const LighthouseRecord lighthouse = {.epoch = ~0ULL, .is_public = true};
  EXPECT_EQ(parse_lighthouse(to_text(lighthouse)), lighthouse);
  const Quorum quorum = {
      .lighthouse_epoch = 0xfedcba9876543210,
      .id = 7,
      .outer_steps = 6,
      .members = {{.worker = 0, .epoch = 1, .state_hash = "x"},
                  {.worker = 2, .epoch = ~0ULL, .weight = 3, .has_finished = true, .donor = 0}}};
  EXPECT_EQ(parse_quorum(to_text(quorum)), quorum);
}

TEST(Records, WhatIsNoRecordIsRefused) {
  const std::string good = to_text(BeatRecord{});
  parse_beat(good);
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_THROW(parse_beat(good.substr(0, length)), CheckError) << length;
  for (const char* text : {"", "7", "[]", "{}", "null", "{\"worker\":\"x\"}"}) {
    EXPECT_THROW(parse_beat(text), CheckError) << text;
    EXPECT_THROW(parse_quorum(text), CheckError) << text;
    EXPECT_THROW(parse_lighthouse(text), CheckError) << text;
  }
  EXPECT_THROW(parse_beat(std::string(2 << 20, ' ')), CheckError);
}

}  // namespace
}  // namespace ladder
