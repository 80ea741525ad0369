// What the lighthouse answers to reports that the test writes.
#include "step9_diloco/elastic/lighthouse.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/core/check.hpp"
#include "common/core/json.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kStale = 0.5;

class LighthouseTest : public ::testing::Test {
 protected:
  // The worker's next report, and the answer to it.
  Answer report(const Heartbeat& beat, const QuorumNumber& round = {}, Vote vote = Vote::kNone) {
    Report report = {.beat = beat,
                     .number = ++num_reports_,
                     .num_workers = 2,
                     .settings = settings_,
                     .round = round,
                     .vote = vote};
    report.beat.address = concat("tcp://127.0.0.1:", beat.worker + 1);
    return lighthouse_.answer(report);
  }
  static Heartbeat asking(int worker, std::int64_t request, std::int64_t outer_steps,
                          std::uint64_t process = 1, const QuorumNumber& last_quorum = {}) {
    return {.worker = worker,
            .process = process,
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
  // The quorum of workers 0 to num_workers − 1, all at outer step 5, for their next request.
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
  std::string log_;
  Lighthouse lighthouse_{/*epoch=*/1000,
                         /*is_public=*/false,
                         {.stale_s = kStale, .join_timeout_s = 0.2},
                         [this](const std::string& message) { log_ += message + "\n"; },
                         [this] { return now_s_; }};
  GroupSettings settings_ = {{"--data", "a"}, {"--lr", "0.001"}};
  std::int64_t num_reports_ = 0, request_ = 0, progress_ = 0;
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
    const Heartbeat other = asking(0, 1, 5, /*process=*/2);
    EXPECT_EQ(report(other, quorum.number(), choice).decision, Decision::kOpen);
  }
}

// The quorum is an earlier lighthouse's, whose rounds this one does not know.
TEST_F(LighthouseTest, WhoWakesAfterTheLighthouseWasRestartedDecidesNothing) {
  const Quorum quorum = {.lighthouse_epoch = 5, .id = 7, .members = {{.worker = 0, .process = 1}}};
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

// A typo, and a restart: the newcomer never ends the one that lives, and gets its place once that
// one is lost.
TEST_F(LighthouseTest, OfTwoProcessesWithOneNumberTheOneThatIsHeardStays) {
  const auto answer = [&](std::uint64_t process) { return report(asking(0, 1, 0, process)); };
  const auto is_in = [&](std::uint64_t process) {
    const Answer given = answer(process);
    return given.refusal.empty() && given.wait.empty();
  };
  EXPECT_TRUE(is_in(7));
  EXPECT_THAT(answer(8).wait, HasSubstr("another process is worker 0"));  // is 7 alive?
  now_s_ += 0.1;
  EXPECT_TRUE(is_in(7));
  EXPECT_THAT(answer(8).refusal, AllOf(HasSubstr("another process is worker 0"),
                                       HasSubstr("give this one a --worker of its own")));
  EXPECT_TRUE(is_in(7));
  EXPECT_NE(answer(9).wait, "");
  watch(40, [&] { EXPECT_NE(answer(9).wait, ""); });
  watch(20, [] {});  // 7 is lost
  EXPECT_TRUE(is_in(9));
  watch(10, [&] { EXPECT_TRUE(is_in(9)); });
  EXPECT_NE(answer(7).wait, "");  // it was frozen
  now_s_ += 0.01;
  EXPECT_TRUE(is_in(9));
  EXPECT_NE(answer(7).refusal, "");
}

// All heartbeats look old then. The first to be heard is a newcomer.
TEST_F(LighthouseTest, AfterAPauseOfItsOwnItTakesNobodyForLost) {
  watch(1, [&] { report(asking(0, 1, 0, /*process=*/7)); });
  now_s_ += 5;
  EXPECT_NE(report(asking(0, 1, 0, /*process=*/8)).wait, "");
  lighthouse_.form_quorum();
  EXPECT_NE(report(asking(0, 1, 0, /*process=*/8)).wait, "");
  now_s_ += 0.1;
  EXPECT_EQ(report(asking(0, 2, 0, /*process=*/7)).wait, "");
  EXPECT_NE(report(asking(0, 1, 0, /*process=*/8)).refusal, "");
}

TEST_F(LighthouseTest, OneWithOtherSettingsIsRefusedAndTheyAreNamed) {
  const GroupSettings group = settings_;
  report(training(0, 0, 0, 0));
  for (const auto& [name, value] :
       GroupSettings{{"--data", "b"}, {"--lr", "0.5"}, {"--new", "1"}}) {
    settings_ = group;
    settings_[name] = value;
    EXPECT_THAT(report(training(1, 0, 0, 0)).refusal,
                HasSubstr(concat("its ", name, " is ", value, ", that of the others is ",
                                 group.contains(name) ? group.at(name) : "nothing")));
  }
  settings_ = {};  // it comes back to a lighthouse that was started again
  EXPECT_TRUE(report(training(1, 0, 0, 0)).wants_settings);
  settings_ = group;
  EXPECT_EQ(report(training(1, 0, 0, 0)).refusal, "");
  settings_ = {};
  EXPECT_FALSE(report(training(1, 0, 0, 0)).wants_settings);
}

// ---- Runs ---------------------------------------------------------------------------------------

class RunTest : public LighthouseTest {
 protected:
  // A request of a worker with a state of this run, of quorum 7 of an earlier lighthouse.
  Heartbeat of_run(int worker, std::uint64_t run, std::int64_t outer_steps = 5) {
    Heartbeat beat = asking(worker, ++request_, outer_steps, 1, {900, 7});
    beat.run = run;
    return beat;
  }
  Heartbeat empty(int worker) { return asking(worker, ++request_, 0); }
};

// Whoever comes first, in time for the first quorum.
TEST_F(RunTest, OneWithoutAStateHealsFromOneThatHasIt) {
  for (const bool is_empty_first : {true, false}) {
    Lighthouse fresh(1000, false, {.stale_s = kStale}, say_nothing, [this] { return now_s_; });
    std::swap(fresh, lighthouse_);
    if (is_empty_first) ask(empty(0));
    ask(of_run(1, 21));
    if (!is_empty_first) ask(empty(0));
    const Quorum quorum = lighthouse_.form_quorum().value();
    EXPECT_EQ(quorum.run, 21U);
    EXPECT_EQ(quorum.member(0).donor, 1);
  }
}

// Once all have left, with a state of that run or of none, another group may come.
TEST_F(RunTest, AGroupThatHasLeftIsForgotten) {
  ask(of_run(0, 21));
  EXPECT_NE(report(of_run(1, 22)).refusal, "");
  Report leaving = {.beat = of_run(0, 21), .number = ++num_reports_, .num_workers = 2};
  leaving.beat.address = "tcp://127.0.0.1:1";
  leaving.is_leaving = true;
  lighthouse_.answer(leaving);
  settings_["--lr"] = "7";
  EXPECT_EQ(report(of_run(1, 22)).refusal, "");
}

// The worker that has the run's state is gone: those without any must not begin it anew, however
// long they wait. Nothing would be left of it when that worker comes back.
TEST_F(RunTest, WithoutAStateOfTheRunThereIsNoQuorum) {
  ask(of_run(0, 21));
  ASSERT_NE(watch(60, [&] { ask(of_run(0, 21)); }), std::nullopt);
  watch(80, [] {});
  EXPECT_EQ(watch(500, [&] { ask(empty(1)); }), std::nullopt);
  EXPECT_THAT(log_, HasSubstr("no quorum: waits for a worker that has a state of run"));
  const auto quorum = watch(60, [&] {
    ask(empty(1));
    ask(of_run(0, 21));
  });
  ASSERT_NE(quorum, std::nullopt);
  EXPECT_EQ(quorum->member(1).donor, 0);
}

// All are there, and nobody has a state of the run: it is lost, and there is nothing to wait for.
TEST_F(RunTest, OnceAllHaveLostItsStateAnotherRunBegins) {
  ask(of_run(0, 21));
  watch(80, [] {});
  const auto quorum = watch(80, [&] {
    for (const int worker : {0, 1}) ask(asking(worker, ++request_, 0, /*process=*/worker + 5));
  });
  ASSERT_NE(quorum, std::nullopt);
  EXPECT_NE(quorum->run, 21U);
  EXPECT_NE(quorum->run, 0U);
  EXPECT_NE(report(of_run(0, 21)).refusal + report(of_run(0, 21)).wait, "");
}

// An empty folder was first, by far. The others' state is not undone: they are told.
TEST_F(RunTest, TwoHistoriesNeverMix) {
  const auto founded = watch(80, [&] { ask(empty(0)); });
  ASSERT_NE(founded, std::nullopt);
  ASSERT_NE(founded->run, 0U);
  Heartbeat adopted = empty(0);
  adopted.run = founded->run;
  adopted.last_quorum = founded->number();
  report(adopted);
  EXPECT_THAT(report(of_run(1, 21, 1000)).refusal,
              AllOf(HasSubstr("belongs to run " + id_text(21)),
                    HasSubstr("train run " + id_text(founded->run)), HasSubstr("empty --out")));
  Heartbeat former = asking(1, ++request_, 1000, 1, {900, 7});  // a checkpoint that names no run
  former.state_hash = "another";
  ask(former);
  ask(adopted);
  const auto quorum = watch(80, [&] {
    ++adopted.request, ++former.request;
    ask(adopted);
    ask(former);
  });
  ASSERT_NE(quorum, std::nullopt);
  EXPECT_EQ(quorum->member(1).donor, 0);
}

// The lighthouse was started again. Worker 1 has begun run 22 while worker 0 was frozen, which is
// back, and is heard first.
TEST_F(RunTest, BeforeTheFirstQuorumTheNewestStateDecidesWhichRunItIs) {
  Heartbeat later = of_run(1, 22, 1), latest = of_run(0, 23);
  later.last_quorum = {950, 1};
  latest.last_quorum = {960, 1};
  EXPECT_EQ(report(of_run(0, 21)).refusal, "");
  EXPECT_EQ(report(later).refusal, "");
  EXPECT_THAT(report(of_run(0, 21)).refusal, HasSubstr("train run " + id_text(22)));
  const Quorum quorum = watch(80, [&] { ask(later); }).value();
  EXPECT_EQ(quorum.run, 22U);
  EXPECT_EQ(quorum.members.size(), 1U);
  EXPECT_NE(report(latest).refusal, "");
}

// A typo, in the moment in which the lighthouse starts.
TEST_F(RunTest, BeforeTheFirstQuorumTheNewestStateDecidesWhichSettingsCount) {
  const GroupSettings group = settings_;
  const Heartbeat without_run = asking(0, ++request_, 1000, 1, {950, 1});
  settings_["--lr"] = "7";
  EXPECT_EQ(report(without_run).refusal, "");
  settings_ = group;
  EXPECT_EQ(report(of_run(1, 21)).refusal, "");
  settings_["--lr"] = "7";
  EXPECT_THAT(report(without_run).refusal, HasSubstr("--lr is 7, that of the others is 0.001"));
  settings_ = group;
  EXPECT_EQ(watch(3, [&] { ask(of_run(1, 21)); }), std::nullopt);  // it waits for all
  settings_["--lr"] = "7";
  EXPECT_NE(report(of_run(0, 21)).refusal, "");  // its state is as new
}

// Worker 0 may have begun it, even if no report says so yet, also after a pause of the lighthouse.
TEST_F(RunTest, AFoundedRunCountsFromItsQuorumOn) {
  const Quorum founded = watch(80, [&] { ask(empty(0)); }).value();
  for (const double pause_s : {0.0, 5.0}) {
    now_s_ += pause_s;
    watch(2, [] {});
    EXPECT_THAT(report(of_run(1, 21)).refusal, HasSubstr("train run " + id_text(founded.run)));
  }
  Heartbeat adopted = empty(0);
  adopted.run = founded.run;
  adopted.last_quorum = founded.number();
  EXPECT_EQ(report(adopted).refusal, "");
}

TEST_F(RunTest, AFoundedRunIsForgottenOnceNobodyIsLeftWhoMayHaveBegunIt) {
  ASSERT_NE(watch(80, [&] { ask(empty(0)); }), std::nullopt);
  EXPECT_NE(report(of_run(1, 21)).refusal, "");
  watch(80, [] {});
  EXPECT_EQ(report(of_run(1, 21)).refusal, "");
  Heartbeat later = of_run(0, 22);
  later.process = 2;
  later.last_quorum = {950, 1};
  EXPECT_EQ(report(later).refusal, "");
}

// A lighthouse after the other, each with a forged report at the edge of what it believes, gets no
// further than a year each: it never runs out of numbers.
TEST_F(LighthouseTest, AMadeUpEpochIsNotCountedOnFrom) {
  const auto with_epoch = [&](std::uint64_t epoch) {
    return asking(0, ++request_, 0, 1, {epoch, 0});
  };
  const std::uint64_t year = 365ULL * 24 * 3600 * 1'000'000;
  for (const std::uint64_t epoch :
       std::vector<std::uint64_t>{1ULL << 53, 1ULL << 52, 1000 + year + 1})
    EXPECT_THAT(report(with_epoch(epoch)).refusal, HasSubstr("set the clock"));
  EXPECT_EQ(report(with_epoch(1000 + year)).refusal, "");
  const Quorum quorum = watch(80, [&] { ask(with_epoch(1000 + year)); }).value();
  EXPECT_GT(quorum.lighthouse_epoch, 1000 + year);
  EXPECT_LT(quorum.lighthouse_epoch, 1000 + year + 5000);
  EXPECT_EQ(report(asking(0, ++request_, 0, 1, quorum.number())).refusal, "");  // its own
}

// A lighthouse for several machines has no use for a worker that only its own machine reaches, and
// the other way around.
TEST(Lighthouse, WhoCannotBeReachedIsRefused) {
  const auto refusal = [](bool is_public, const char* address) {
    return Lighthouse(/*epoch=*/1, is_public, {}, say_nothing, [] { return 0.0; })
        .answer({.beat = {.address = address}})
        .refusal;
  };
  EXPECT_EQ(refusal(true, "tcp://10.0.0.1:5"), "");
  EXPECT_THAT(refusal(true, "tcp://127.0.1.1:5"), HasSubstr("--elastic HOST:PORT"));
  EXPECT_EQ(refusal(true, "tcp://127.evil.com:5"), "");
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
  EXPECT_EQ(watch(3, [&] { ask(asking(0, 1, 5, /*process=*/2)); }), std::nullopt);
  const auto quorum = watch(1, [&] { ask(asking(1, 1, 6, /*process=*/2)); });
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
    for (const int worker : {1, 2}) ask(asking(worker, 1, 5, /*process=*/2));
  };
  EXPECT_EQ(watch(50,
                  [&] {
                    report(training(0, 1, 5, ++progress));
                    others_ask();
                  }),
            std::nullopt);
  const auto second = watch(50, [&] {
    report(asking(0, 2, 6, /*process=*/1, first.number()));
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

// A worker comes back from another lighthouse, whose clock was ahead.
TEST_F(LighthouseTest, QuorumsAreNumberedInTheirOrderEvenIfTheClockGoesBack) {
  const QuorumNumber other = {lighthouse_.epoch() + 1'000'000'000, 97};
  const QuorumNumber first = quorum_of(2).number();
  EXPECT_EQ(first.lighthouse_epoch, lighthouse_.epoch());
  ask(asking(0, 2, 5, 1, first));
  ask(asking(1, 2, 90, /*process=*/1, other));
  const Quorum second = lighthouse_.form_quorum().value();
  EXPECT_GT(second.number(), other);
  EXPECT_EQ(second.outer_steps, 5);
  EXPECT_EQ(second.member(1).donor, 0);
}

// Whoever reaches the network of this machine does not reach it.
TEST(LighthouseServer, ListensOnTheLoopbackOnly) {
  const LighthouseServer server(0, /*is_public=*/false, {}, say_nothing);
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
  EXPECT_THROW(LighthouseServer(server.port(), false, {}, say_nothing), CheckError);  // it is taken
}

// What a worker of the version before this one sends, and what it reads: these five members.
TEST_F(LighthouseTest, AReportOfAnotherVersionGetsAnAnswer) {
  const std::string former = R"({"beat":{"epoch":5,"worker":0},"number":12,"rules":{}})",
                    later = R"({"beat":{},"number":12,"version":4})";
  for (const auto& [text, version] : {std::pair(former, "2"), std::pair(later, "4")}) {
    const std::string answer = lighthouse_.answer_text(text);
    const Json json = parse_json(answer, "answer");
    EXPECT_EQ(json.size(), 5U) << answer;
    for (const char* name : {"decision", "lighthouse_epoch", "number", "quorum", "refusal"})
      EXPECT_TRUE(json.contains(name)) << name;
    const Answer read = parse_answer(answer);
    EXPECT_EQ(read.number, 12);
    EXPECT_THAT(read.refusal, HasSubstr(concat("speaks version ", version, " of the protocol")));
  }
  for (const char* const text : {"{}", R"({"version":4})", R"({"version":3,"beat":{},"number":1})"})
    EXPECT_THROW(lighthouse_.answer_text(text), CheckError);
}

// ---- What people read ---------------------------------------------------------------------------

TEST_F(LighthouseTest, SaysOnceWhyThereIsNoQuorum) {
  const auto count = [&](const std::string& text) {
    int num = 0;
    for (std::size_t at = log_.find(text); at != std::string::npos; at = log_.find(text, at + 1))
      ++num;
    return num;
  };
  watch(300, [&] {
    report(training(1, 0, 7, ++progress_));
    ask(asking(0, 1, 5));
  });
  EXPECT_EQ(count("no quorum:"), 1) << log_;
  EXPECT_EQ(count("no quorum: waits for worker 1, whose state is newer (asking: 0; training: 1)"),
            1)
      << log_;
  watch(300, [&] { report(training(1, 0, 7, ++progress_)); });  // worker 0 is lost
  EXPECT_EQ(count("no quorum:"), 1) << log_;                    // nobody asks: nothing is amiss
  EXPECT_NE(watch(80, [&] { ask(asking(1, 1, 7)); }), std::nullopt);
  watch(300, [] {});
  EXPECT_EQ(count("no quorum: nobody is there (not heard: 0 1)"), 1) << log_;
}

TEST_F(LighthouseTest, AnswersWhoeverAsksWhatItKnows) {
  EXPECT_THAT(lighthouse_.answer_text(kStatusQuestion), HasSubstr("nobody is there"));
  report(training(1, 0, 7, 1));
  ask(asking(0, 1, 5));
  watch(10, [&] { ask(asking(0, 1, 5)); });
  const std::string status = lighthouse_.answer_text(kStatusQuestion);
  EXPECT_THAT(status, AllOf(HasSubstr("run none yet"), HasSubstr("     0  asks                 5"),
                            HasSubstr("     1  trains               7"),
                            HasSubstr("no quorum now: waits for worker 1, whose state is newer")));
}

}  // namespace
}  // namespace ladder
