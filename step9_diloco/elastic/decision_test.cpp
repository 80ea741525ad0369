#include "step9_diloco/elastic/decision.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "common/core/timer.hpp"
#include "step9_diloco/elastic/lighthouse.hpp"
#include "step9_diloco/elastic/records.hpp"
#include "step9_diloco/elastic/silent_listener.hpp"

namespace ladder {
namespace {

Quorum quorum_of(int num_contributors, int num_healing = 0) {
  Quorum quorum = {.lighthouse_epoch = 5, .id = 7, .outer_steps = 3};
  for (int worker = 0; worker < num_contributors; ++worker)
    quorum.members.push_back({.worker = worker});
  for (int i = 0; i < num_healing; ++i)
    quorum.members.push_back({.worker = num_contributors + i, .donor = 0});
  return quorum;
}

class DecisionTest : public ::testing::Test {
 protected:
  DecisionTest() {
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(lighthouse_.port());
    options.waitWorkers = false;
    server_ = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    store_ = std::make_unique<Store>(HostPort{"127.0.0.1", lighthouse_.port()}, 5);
  }
  std::optional<Decision> poll(const Quorum& quorum, int worker, const Vote& vote) {
    return ladder::poll(*store_, quorum, worker, vote);
  }

  Lighthouse lighthouse_{0, /*is_public=*/false, say_nothing};
  c10::intrusive_ptr<c10d::TCPStore> server_;  // a connection to it
  std::unique_ptr<Store> store_;
};

constexpr Vote kWaits = {}, kReady = {.is_ready = true}, kAborts = {.wants_abort = true};

TEST_F(DecisionTest, CommitsOnceAllHaveVoted) {
  const Quorum quorum = quorum_of(3);
  create_decision(*server_, Seal(), quorum);
  EXPECT_EQ(poll(quorum, 0, kReady), std::nullopt);
  EXPECT_EQ(poll(quorum, 1, kReady), std::nullopt);
  EXPECT_EQ(poll(quorum, 0, kReady), std::nullopt);
  EXPECT_EQ(poll(quorum, 2, kReady), Decision::kCommit);
  EXPECT_EQ(poll(quorum, 0, kReady), Decision::kCommit);
}

TEST_F(DecisionTest, TheFirstDecisionStands) {
  const Quorum quorum = quorum_of(2);
  create_decision(*server_, Seal(), quorum);
  EXPECT_EQ(poll(quorum, 0, kAborts), Decision::kAbort);
  EXPECT_EQ(poll(quorum, 0, kReady), Decision::kAbort);
  EXPECT_EQ(poll(quorum, 1, kReady), Decision::kAbort);
  Quorum next = quorum;
  ++next.id;
  create_decision(*server_, Seal(), next);
  EXPECT_EQ(poll(next, 0, kReady), std::nullopt);
  EXPECT_EQ(poll(next, 1, kReady), Decision::kCommit);
  EXPECT_EQ(poll(next, 0, kAborts), Decision::kCommit);  // too late
}

// It may time out, but if all have voted, all have the average.
TEST_F(DecisionTest, AbortingAfterTheLastVoteCommits) {
  const Quorum quorum = quorum_of(2);
  create_decision(*server_, Seal(), quorum);
  EXPECT_EQ(poll(quorum, 0, kReady), std::nullopt);
  store_->set(vote_key(quorum, 1), "yes");
  EXPECT_EQ(poll(quorum, 0, kAborts), Decision::kCommit);
}

TEST_F(DecisionTest, WhoHealsHasNoSay) {
  const Quorum quorum = quorum_of(2, 1);
  create_decision(*server_, Seal(), quorum);
  EXPECT_EQ(await_decision(*store_, quorum, 2, /*is_ready=*/true, 0.05), Decision::kUnknown);
  EXPECT_EQ(store_->get(decision_key(quorum)), "open");
  EXPECT_EQ(poll(quorum, 0, kReady), std::nullopt);
  EXPECT_EQ(poll(quorum, 1, kReady), Decision::kCommit);
  EXPECT_EQ(await_decision(*store_, quorum, 2, true, 0.05), Decision::kCommit);
}

// All others have voted. If it could write the key, it would commit a round that nobody remembers.
TEST_F(DecisionTest, WhoWakesAfterTheRoundIsGoneDecidesNothing) {
  const Quorum quorum = quorum_of(2);
  for (const Vote& vote : {kWaits, kReady, kAborts}) {
    EXPECT_EQ(poll(quorum, 1, vote), Decision::kUnknown);
    EXPECT_EQ(store_->get(decision_key(quorum)), std::nullopt);
  }
}

// The same, but the key disappears between its reading and its writing.
TEST_F(DecisionTest, ACompareSetOnAKeyThatIsGoneIsNoDecision) {
  const Quorum quorum = quorum_of(1);
  EXPECT_EQ(store_->compare_set(decision_key(quorum), "open", "commit"), "open");
  EXPECT_EQ(store_->get(decision_key(quorum)), std::nullopt);
}

TEST_F(DecisionTest, TimesOutIntoAnAbortThatTheOthersObey) {
  const Quorum quorum = quorum_of(3);
  create_decision(*server_, Seal(), quorum);
  const Timer timer;
  EXPECT_EQ(await_decision(*store_, quorum, 0, /*is_ready=*/true, 0.2), Decision::kAbort);
  EXPECT_GE(timer.seconds(), 0.2);
  EXPECT_EQ(await_decision(*store_, quorum, 1, true, 10), Decision::kAbort);
  EXPECT_LT(timer.seconds(), 5);
}

TEST_F(DecisionTest, WithoutALighthouseItGivesUp) {
  Store nobody({"127.0.0.1", 1}, 0.5);
  EXPECT_EQ(await_decision(nobody, quorum_of(2), 0, true, 0.1), Decision::kUnknown);
}

// The first attempt ends long after the deadline, without an answer, as if somebody had been frozen
// meanwhile. The round is committed, and the next attempt finds out.
TEST(Decision, AnAttemptThatTookTooLongIsNotTheLast) {
  const Quorum quorum = quorum_of(2);
  std::optional<SilentListener> silent(std::in_place);
  const int port = silent->port();
  Store store({"127.0.0.1", port}, 1.3);
  std::optional<Lighthouse> lighthouse;
  std::thread wakes([&] {
    // The one of Store's two connections that finds out whether somebody listens.
    silent->accept();
    silent->accept();
    silent->stop_listening();
    lighthouse.emplace(port, /*is_public=*/false, say_nothing);
    Store other({"127.0.0.1", port}, 5);
    EXPECT_EQ(other.compare_set(decision_key(quorum), "", "commit"), "commit");
  });
  EXPECT_EQ(await_decision(store, quorum, 0, /*is_ready=*/true, 0.1), Decision::kCommit);
  wakes.join();
}

// Many voters and one that aborts, at the same time: whatever comes out, all see the same.
TEST_F(DecisionTest, AllSeeTheSame) {
  int num_commits = 0;
  for (int round = 0; round < 30; ++round) {
    Quorum quorum = quorum_of(4);
    quorum.id = 100 + round;
    create_decision(*server_, Seal(), quorum);
    std::vector<Decision> seen(4);
    std::vector<std::thread> threads;
    for (int worker = 0; worker < 4; ++worker) {
      threads.emplace_back([&, worker] {
        Store own({"127.0.0.1", lighthouse_.port()}, 5);
        const double patience_s = worker == 3 ? 0.0005 * round : 5;
        seen[static_cast<std::size_t>(worker)] =
            await_decision(own, quorum, worker, true, patience_s);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Decision decision : seen) EXPECT_EQ(decision, seen[0]) << round;
    EXPECT_NE(seen[0], Decision::kUnknown);
    num_commits += seen[0] == Decision::kCommit;
  }
  std::cout << num_commits << " of 30 rounds committed\n";
}

}  // namespace
}  // namespace ladder
