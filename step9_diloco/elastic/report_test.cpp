// What reports and answers are as text, and what of them is believed.
#include "step9_diloco/elastic/report.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <utility>
#include <vector>

#include "common/core/check.hpp"
#include "common/core/seed.hpp"
#include "step9_diloco/elastic/lighthouse.hpp"

namespace ladder {
namespace {

TEST(Report, IsReadAsItWasWritten) {
  const Report report = {.beat = {.worker = 3,
                                  .process = kMostId,
                                  .phase = Phase::kHealing,
                                  .request = 4,
                                  .last_ended = 3,
                                  .has_finished = true,
                                  .progress = 5,
                                  .run = kMostId,
                                  .last_quorum = {kMostId, 8},
                                  .outer_steps = 6,
                                  .state_hash = "ab",
                                  .address = "tcp://127.0.0.1:1"},
                         .number = 9,
                         .num_workers = 4,
                         .settings = {{"--lr", "0.001"}, {"--data", "a"}},
                         .round = {kMostId, kMostCount},
                         .vote = Vote::kAgainst,
                         .is_leaving = true};
  EXPECT_EQ(parse_report(to_text(report)), report);
  Answer answer = {.number = 9,
                   .lighthouse_epoch = kMostId,
                   .join_timeout_s = 0.1,
                   .refusal = "no",
                   .wait = "not yet",
                   .wants_settings = true};
  EXPECT_EQ(parse_answer(to_text(answer)), answer);
  answer.decision = Decision::kCommit;
  answer.quorum = {
      .lighthouse_epoch = kMostId,
      .id = 7,
      .run = 4,
      .outer_steps = 6,
      .is_enough = false,
      .members = {{.worker = 0, .process = 1, .state_hash = "x"},
                  {.worker = 2, .process = kMostId, .has_finished = true, .donor = 0}}};
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
  for (const auto& [old, other] : std::vector<std::pair<std::string, std::string>>{
           {"none", "maybe"},
           {"\"worker\":0", "\"worker\":-1"},
           {"\"worker\":0", "\"worker\":4294967296"},
           {"\"request\":0", "\"request\":0.5"},
           {"\"request\":0", "\"request\":1e300"},
           {"\"request\":0", "\"request\":0,\"more\":0"},
           {"\"outer_steps\":0", "\"outer_steps\":9223372036854775807"},
           {"\"outer_steps\":0", "\"outer_steps\":18446744073709551615"},
           {"\"outer_steps\":0", "\"outer_steps\":1099511627776"},
           {"\"process\":0", "\"process\":9007199254740993"},
           {"\"run\":0", "\"run\":1152921504606846976"},
           {"\"lighthouse_epoch\":0", "\"lighthouse_epoch\":1152921504606846976"},
           {"\"num_workers\":1", "\"num_workers\":0"},
           {"\"num_workers\":1", "\"num_workers\":1025"},
           {"\"worker\":0", "\"worker\":1"},
           {"\"address\":\"\"", concat("\"address\":\"", std::string(65, 'a'), "\"")},
           {"\"state_hash\":\"\"", concat("\"state_hash\":\"", std::string(65, 'a'), "\"")}}) {
    std::string text = good;
    ASSERT_NE(text.find(old), std::string::npos) << old;
    text.replace(text.find(old), old.size(), other);
    EXPECT_THROW(parse_report(text), CheckError) << text;
  }
}

// Reports whose numbers are at the edges. Whatever is believed, all that follows from it can be read
// by the others, and is within the bounds of a checkpoint.
TEST(Numbers, WhatIsBelievedCanBeReadBack) {
  const std::vector<std::uint64_t> edges = {0,
                                            1,
                                            999,
                                            (1ULL << 31) - 1,
                                            1ULL << 31,
                                            (1ULL << 40) - 1,
                                            1ULL << 40,
                                            (1ULL << 40) + 1,
                                            (1ULL << 50) + 3,
                                            (1ULL << 53) - 1,
                                            1ULL << 53,
                                            (1ULL << 53) + 1,
                                            1ULL << 60,
                                            (1ULL << 63) - 1,
                                            1ULL << 63,
                                            ~0ULL};
  Random random(11);
  std::int64_t num_heard = 0, num_quorums = 0;
  for (int i = 0; i < 1000; ++i) {
    double now_s = 0;
    Lighthouse lighthouse((1ULL << 50) + 3, false, {.stale_s = 1, .join_timeout_s = 1}, say_nothing,
                          [&] { return now_s; });
    const auto any = [&](std::uint64_t usual) {
      if (random.uniform() < 0.8) return usual;
      return edges[static_cast<std::size_t>(random.below(std::ssize(edges)))];
    };
    const auto count = [&](std::uint64_t usual) { return static_cast<std::int64_t>(any(usual)); };
    std::vector<Report> forged;
    for (int worker = 0; worker < 3; ++worker)
      forged.push_back({.beat = {.worker = static_cast<int>(any(worker)),
                                 .process = any(worker + 1),
                                 .phase = Phase::kAsking,
                                 .request = count(1),
                                 .last_ended = count(0),
                                 .progress = count(1),
                                 .run = any(0),
                                 .last_quorum = {any(5), count(0)},
                                 .outer_steps = count(0),
                                 .address = "tcp://127.0.0.1:1"},
                        .number = count(1),
                        .num_workers = static_cast<int>(any(3)),
                        .settings = {{"a", "b"}},
                        .round = {any(0), count(0)}});
    std::optional<Quorum> quorum;
    for (; now_s < 2 && !quorum; now_s += 0.4) {
      for (Report& report : forged) {
        report.number =
            report.number == std::numeric_limits<std::int64_t>::max() ? 0 : report.number + 1;
        try {
          num_heard += parse_answer(lighthouse.answer_text(to_text(report))).refusal.empty();
        } catch (const CheckError&) {  // it is no report
        }
      }
      quorum = lighthouse.form_quorum();
    }
    if (!quorum) continue;
    ++num_quorums;
    const Answer answer = {.quorum = quorum};
    EXPECT_EQ(parse_answer(to_text(answer)), answer);
    EXPECT_LE(quorum->run, kMostId);
    EXPECT_LE(quorum->lighthouse_epoch, kMostId);
    EXPECT_LE(quorum->outer_steps, kMostCount);
  }
  EXPECT_GT(num_heard, 1000);
  EXPECT_GT(num_quorums, 300);
}

}  // namespace
}  // namespace ladder
