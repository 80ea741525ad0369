// What the lighthouse answers to reports that the test writes, and what reports and answers are as
// text.
#include "step9_diloco/elastic/lighthouse.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <sstream>

#include "common/core/check.hpp"

namespace ladder {
namespace {

using ::testing::HasSubstr;

constexpr double kStale = 0.5;

class LighthouseTest : public ::testing::Test {
 protected:
  // The worker's next report, and the answer to it.
  Answer report(const Heartbeat& beat, const QuorumNumber& round = {}, Vote vote = Vote::kNone) {
    Report report = {.beat = beat,
                     .number = ++num_reports_,
                     .rules = {.num_workers = 2, .stale_s = kStale, .join_timeout_s = 0.2},
                     .fingerprint = "toy",
                     .round = round,
                     .vote = vote};
    report.beat.address = concat("tcp://127.0.0.1:", beat.worker + 1);
    return lighthouse_.answer(report);
  }
  static Heartbeat asking(int worker, std::int64_t request, std::int64_t outer_steps,
                          std::uint64_t epoch = 1, const QuorumNumber& last_quorum = {}) {
    return {.worker = worker,
            .epoch = epoch,
            .phase = Phase::kAsking,
            .request = request,
            .last_quorum = last_quorum,
            .outer_steps = outer_steps};
  }
  static Heartbeat training(int worker, std::int64_t request, std::int64_t outer_steps,
                            std::int64_t progress) {
    Heartbeat heartbeat = asking(worker, request, outer_steps);
    heartbeat.phase = Phase::kTraining;
    heartbeat.progress = progress;
    return heartbeat;
  }
  std::optional<Quorum> ask(const Heartbeat& beat) { return report(beat).quorum; }
  // The quorum that is formed last while they say this, and the lighthouse looks every 10 ms.
  std::optional<Quorum> watch(int num_looks, const std::function<void()>& say) {
    std::optional<Quorum> last;
    for (int i = 0; i < num_looks; ++i, now_s_ += 0.01) {
      say();
      if (const std::optional<Quorum> quorum = lighthouse_.form_quorum()) last = quorum;
    }
    return last;
  }
  // Of workers 0 to num_workers − 1, all at outer step 5, for their next request.
  Quorum quorum_of(int num_workers) {
    ++request_;
    for (int worker = 0; worker < num_workers; ++worker) ask(asking(worker, request_, 5));
    const Quorum quorum = lighthouse_.form_quorum().value();
    EXPECT_EQ(quorum.members.size(), static_cast<std::size_t>(num_workers));
    EXPECT_EQ(ask(asking(0, request_, 5)), quorum);
    return quorum;
  }
  Decision vote(const Quorum& quorum, int worker, Vote vote) {
    return report(training(worker, request_, 5, 0), quorum.number(), vote).decision;
  }

  double now_s_ = 0;
  Lighthouse lighthouse_{/*epoch=*/1000, /*is_public=*/false, say_nothing,
                         [this] { return now_s_; }};
  std::int64_t num_reports_ = 0, request_ = 0;
};

TEST_F(LighthouseTest, CommitsOnceAllHaveVoted) {
  const Quorum quorum = quorum_of(3);
  EXPECT_EQ(vote(quorum, 0, Vote::kFor), Decision::kOpen);
  EXPECT_EQ(vote(quorum, 1, Vote::kFor), Decision::kOpen);
  EXPECT_EQ(vote(quorum, 0, Vote::kFor), Decision::kOpen);  // twice, it counts once
  EXPECT_EQ(vote(quorum, 2, Vote::kFor), Decision::kCommit);
  EXPECT_EQ(vote(quorum, 0, Vote::kAgainst), Decision::kCommit);  // too late
  EXPECT_EQ(vote(quorum, 1, Vote::kNone), Decision::kCommit);
}

TEST_F(LighthouseTest, OneVoteAgainstAborts) {
  const Quorum quorum = quorum_of(2);
  EXPECT_EQ(vote(quorum, 0, Vote::kFor), Decision::kOpen);
  EXPECT_EQ(vote(quorum, 0, Vote::kAgainst), Decision::kAbort);  // it waits no longer
  EXPECT_EQ(vote(quorum, 1, Vote::kFor), Decision::kAbort);
  EXPECT_EQ(vote(quorum, 0, Vote::kFor), Decision::kAbort);
}

// Worker 1 dies before it has voted, or freezes. If it wakes after the next quorum, it can commit
// the round no more.
TEST_F(LighthouseTest, ANewQuorumAbortsTheRoundBeforeIt) {
  const Quorum first = quorum_of(2);
  EXPECT_EQ(vote(first, 0, Vote::kFor), Decision::kOpen);
  EXPECT_NE(watch(80, [&] { ask(asking(0, 2, 5, 1, first.number())); }), std::nullopt);
  EXPECT_EQ(vote(first, 1, Vote::kFor), Decision::kAbort);
}

// One that heals, that belongs to another process, or that is no member.
TEST_F(LighthouseTest, OnlyContributorsHaveAVote) {
  ask(asking(0, 1, 5));
  ask(asking(1, 1, 4));
  const Quorum quorum = lighthouse_.form_quorum().value();
  EXPECT_EQ(quorum.member(1).donor, 0);
  for (const Vote choice : {Vote::kFor, Vote::kAgainst}) {
    EXPECT_EQ(vote(quorum, 1, choice), Decision::kOpen);
    EXPECT_EQ(vote(quorum, 2, choice), Decision::kOpen);
    const Heartbeat other = asking(0, 1, 5, /*epoch=*/2);
    EXPECT_EQ(report(other, quorum.number(), choice).decision, Decision::kOpen);
  }
}

// Of an earlier lighthouse, whose rounds this one does not know.
TEST_F(LighthouseTest, WhoWakesAfterTheLighthouseWasRestartedDecidesNothing) {
  const Quorum quorum = {.lighthouse_epoch = 5, .id = 7, .members = {{.worker = 0, .epoch = 1}}};
  for (const Vote choice : {Vote::kNone, Vote::kFor, Vote::kAgainst})
    EXPECT_EQ(vote(quorum, 0, choice), Decision::kUnknown);
}

// A report that was on its way for long, or comes twice.
TEST_F(LighthouseTest, AnOlderReportChangesNothing) {
  const Quorum quorum = quorum_of(2);
  const std::int64_t number = num_reports_;
  EXPECT_EQ(vote(quorum, 1, Vote::kFor), Decision::kOpen);
  for (const std::int64_t earlier : {number - 1, number}) {
    num_reports_ = earlier - 1;
    EXPECT_EQ(vote(quorum, 0, Vote::kFor), Decision::kOpen);
  }
  num_reports_ = number + 1;
  EXPECT_EQ(vote(quorum, 1, Vote::kNone), Decision::kOpen);
  EXPECT_EQ(vote(quorum, 0, Vote::kFor), Decision::kCommit);
}

TEST_F(LighthouseTest, OfTwoProcessesWithOneNumberTheLaterOneStays) {
  const auto refusal = [&](std::uint64_t epoch) { return report(asking(0, 1, 0, epoch)).refusal; };
  EXPECT_EQ(refusal(7), "");
  EXPECT_EQ(refusal(8), "");
  EXPECT_THAT(refusal(7), HasSubstr("another process has taken its place"));
  EXPECT_EQ(refusal(6), "");  // perhaps the only one that lives: its clock has gone back
  EXPECT_EQ(refusal(8), "");
  EXPECT_THAT(refusal(6), HasSubstr("another process has taken its place"));
  EXPECT_EQ(refusal(5), "");
  now_s_ += 0.7;  // the other one is lost
  EXPECT_EQ(refusal(5), "");
  EXPECT_THAT(refusal(8), HasSubstr("another process has taken its place"));
}

// A lighthouse for several machines has no use for a worker that only its own machine reaches, and
// the other way around.
TEST(Lighthouse, WhoCannotBeReachedIsRefused) {
  const auto refusal = [](bool is_public, const char* address) {
    return Lighthouse(/*epoch=*/1, is_public, say_nothing, [] { return 0.0; })
        .answer({.beat = {.address = address}})
        .refusal;
  };
  EXPECT_EQ(refusal(true, "tcp://10.0.0.1:5"), "");
  EXPECT_THAT(refusal(true, "tcp://127.0.1.1:5"), HasSubstr("--elastic HOST:PORT"));
  EXPECT_EQ(refusal(false, "tcp://127.0.0.1:5"), "");
  EXPECT_THAT(refusal(false, "tcp://10.0.0.1:5"), HasSubstr("start it with --public"));
}

// After a pause, in which both workers lived, the one that is heard first does not go off alone;
// unless the other one is lost indeed.
TEST_F(LighthouseTest, AfterAPauseItWaitsForAll) {
  report(training(1, 0, 0, 0));
  ask(asking(0, 1, 0));
  lighthouse_.form_quorum();
  now_s_ += 0.7;  // beyond kStale
  const auto asks = [&] { ask(asking(0, 1, 0)); };
  EXPECT_EQ(watch(20, asks), std::nullopt);
  EXPECT_NE(watch(60, asks), std::nullopt);
}

// Both vanish. The first to come back, from an old checkpoint, does not go off alone.
TEST_F(LighthouseTest, AfterAllWereLostItWaitsForAll) {
  report(training(0, 0, 7, 0));
  report(training(1, 0, 7, 0));
  watch(80, [] {});
  EXPECT_EQ(watch(3, [&] { ask(asking(0, 1, 5, /*epoch=*/2)); }), std::nullopt);
  const auto quorum = watch(1, [&] { ask(asking(1, 1, 6, /*epoch=*/2)); });
  ASSERT_NE(quorum, std::nullopt);
  EXPECT_EQ(quorum->member(0).donor, 1);
}

// The round is committed while workers that have given it up ask for the next one. Worker 0 does
// not say yet that it has the outer step.
TEST_F(LighthouseTest, ACommitOfThisMomentIsNotUndone) {
  const Quorum first = quorum_of(3);
  for (const Member& member : first.members) vote(first, member.worker, Vote::kFor);
  std::int64_t progress = 0;
  const auto others_ask = [&] {
    for (const int worker : {1, 2}) ask(asking(worker, 1, 5, /*epoch=*/2));
  };
  EXPECT_EQ(watch(50,
                  [&] {
                    report(training(0, 1, 5, ++progress));
                    others_ask();
                  }),
            std::nullopt);
  const auto second = watch(50, [&] {
    report(asking(0, 2, 6, /*epoch=*/1, first.number()));
    others_ask();
  });
  ASSERT_NE(second, std::nullopt);
  EXPECT_EQ(second->outer_steps, 6);
  EXPECT_EQ(second->member(2).donor, 0);
}

// Worker 0 commits the round alone and dies. Worker 1, which has healed in it, has missed the sum,
// says so, and trains for long. Nobody there knows of the outer step, so workers 2 and 3 go on from
// the state before it, which they have from checkpoints, without waiting for worker 1.
TEST_F(LighthouseTest, AMemberThatHasMissedTheSumIsNotTakenForOneThatHasIt) {
  ask(asking(0, 1, 5));
  ask(asking(1, 1, 4));
  const Quorum first = lighthouse_.form_quorum().value();
  ASSERT_EQ(first.member(1).donor, 0);
  EXPECT_EQ(report(training(0, 1, 5, 0), first.number(), Vote::kFor).decision, Decision::kCommit);
  Heartbeat listener = training(1, 1, 5, 0);
  listener.last_quorum = first.number();
  const auto others_ask = [&] {
    ++listener.progress;
    report(listener);
    for (const int worker : {2, 3}) ask(asking(worker, 1, 5, 1, first.number()));
  };
  EXPECT_EQ(watch(100, others_ask), std::nullopt);  // it may have the sum,
  listener.last_ended = 1;                          // and has it not
  EXPECT_NE(watch(100, others_ask), std::nullopt);
}

// Of a worker that comes back from another lighthouse, whose clock was ahead.
TEST_F(LighthouseTest, QuorumsAreNumberedInTheirOrderEvenIfTheClockGoesBack) {
  const QuorumNumber other = {lighthouse_.epoch() + 1'000'000'000, 97};
  const QuorumNumber first = quorum_of(2).number();
  EXPECT_EQ(first.lighthouse_epoch, lighthouse_.epoch());
  ask(asking(0, 2, 5, 1, first));
  ask(asking(1, 1, 90, /*epoch=*/2, other));
  const Quorum second = lighthouse_.form_quorum().value();
  EXPECT_GT(second.number(), other);
  EXPECT_EQ(second.outer_steps, 5);
  EXPECT_EQ(second.member(1).donor, 0);
}

// Whoever reaches the network of this machine does not reach it.
TEST(LighthouseServer, ListensOnTheLoopbackOnly) {
  const LighthouseServer server(0, /*is_public=*/false, say_nothing);
  std::ifstream table("/proc/net/tcp");
  int num_found = 0;
  char wanted[16];
  std::snprintf(wanted, sizeof wanted, ":%04X", server.port());
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string number, local_address, remote, state;
    words >> number >> local_address >> remote >> state;
    if (state != "0A" || !local_address.ends_with(wanted)) continue;  // 0A: listens
    ++num_found;
    EXPECT_EQ(local_address.substr(0, 8), "0100007F");
  }
  EXPECT_EQ(num_found, 1);
  EXPECT_THROW(LighthouseServer(server.port(), false, say_nothing), CheckError);  // it is taken
}

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
  for (const auto& [old, other] : std::vector<std::pair<const char*, const char*>>{
           {"none", "maybe"},
           {"\"worker\":0", "\"worker\":-1"},
           {"\"worker\":0", "\"worker\":4294967296"},
           {"\"request\":0", "\"request\":0.5"},
           {"\"request\":0", "\"request\":1e300"},
           {"\"request\":0", "\"request\":0,\"more\":0"},
           {"\"outer_steps\":0", "\"outer_steps\":9223372036854775807"},
           {"\"outer_steps\":0", "\"outer_steps\":18446744073709551615"},
           {"\"weight\":1.0", "\"weight\":0.0"}}) {
    std::string text = good;
    ASSERT_NE(text.find(old), std::string::npos) << old;
    text.replace(text.find(old), std::string(old).size(), other);
    EXPECT_THROW(parse_report(text), CheckError) << text;
  }
}

}  // namespace
}  // namespace ladder
