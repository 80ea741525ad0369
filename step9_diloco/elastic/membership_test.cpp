// Workers that share a lighthouse, in threads of this process.
#include "step9_diloco/elastic/membership.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <iostream>
#include <memory>

#include "step9_diloco/elastic/testing/peer.hpp"

namespace ladder {
namespace {

using ::testing::Each;

constexpr int kNumWorkers = 4;

bool never_given_up() {
  return false;
}

class MembershipTest : public ::testing::Test {
 protected:
  void join(int num_workers) {
    lighthouse_.emplace(/*min_workers=*/num_workers, /*join_timeout_s=*/2);
    for (int worker = 0; worker < num_workers; ++worker)
      workers_.push_back(std::make_unique<Membership>(
          ElasticOptions{.lighthouse = lighthouse_->address(),
                         .worker = worker,
                         .num_workers = num_workers,
                         .round_timeout_s = 2},
          std::nullopt,
          Membership::Start{.address = concat("tcp://127.0.0.1:", worker + 1),
                            .settings = {{"--lr", "1"}}},
          say_nothing));
  }
  // All workers do the work, each in a thread of its own.
  template <class Work>
  auto at_once(Work work) {
    std::vector<std::future<decltype(work(0, *workers_[0]))>> futures;
    for (std::size_t i = 0; i < workers_.size(); ++i)
      futures.push_back(
          std::async(std::launch::async, work, static_cast<int>(i), std::ref(*workers_[i])));
    std::vector<decltype(work(0, *workers_[0]))> results;
    for (auto& future : futures) results.push_back(future.get());
    return results;
  }
  void form_quorum() {
    const std::vector<Quorum> quorums = at_once([this](int /*worker*/, Membership& membership) {
      return membership.form_quorum({.history = history_}, 30, never_given_up).value_or(Quorum{});
    });
    EXPECT_THAT(quorums, Each(quorums[0]));
    ASSERT_EQ(quorums[0].members.size(), workers_.size());
    history_ = {quorums[0].run, quorums[0].number()};
  }

  std::optional<TestLighthouse> lighthouse_;
  std::vector<std::unique_ptr<Membership>> workers_;
  History history_;
};

// Many rounds of voters and one that waits no longer, at the same time: whatever comes out, all see
// the same, also those that only look.
TEST_F(MembershipTest, AllSeeTheSameDecision) {
  join(kNumWorkers);
  int num_commits = 0;
  for (int round = 0; round < 30; ++round) {
    form_quorum();
    const std::vector<Decision> seen = at_once([&](int worker, Membership& membership) {
      const double patience_s = worker == 3 ? 0.0005 * (round - 10) : 30;
      const Timer timer;
      const Decision decision = membership.await_decision(/*is_ready=*/true, patience_s);
      EXPECT_TRUE(worker != 3 || decision == Decision::kCommit || timer.seconds() > patience_s);
      EXPECT_EQ(membership.is_aborted(), decision == Decision::kAbort);
      membership.end_round(decision == Decision::kCommit);
      return decision;
    });
    EXPECT_THAT(seen, Each(seen[0])) << round;
    EXPECT_TRUE(seen[0] == Decision::kCommit || seen[0] == Decision::kAbort) << round;
    num_commits += seen[0] == Decision::kCommit;
  }
  std::cout << num_commits << " of 30 rounds committed\n";
}

TEST_F(MembershipTest, WithoutALighthouseItGivesUp) {
  join(1);
  form_quorum();
  lighthouse_.reset();
  const Timer timer;
  EXPECT_EQ(workers_[0]->await_decision(/*is_ready=*/true, 0.1), Decision::kUnknown);
  EXPECT_EQ(workers_[0]->form_quorum({}, 0.3, never_given_up), std::nullopt);
  workers_.clear();
  EXPECT_LT(timer.seconds(), 20);
}

// The lighthouse is frozen until the deadline is over. It has the vote nevertheless, and commits;
// whoever asks long enough finds out.
TEST_F(MembershipTest, AnAnswerThatComesLateCounts) {
  join(1);
  form_quorum();
  lighthouse_->freeze();
  std::thread wakes([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(900));
    lighthouse_->go_on();
  });
  EXPECT_EQ(workers_[0]->await_decision(/*is_ready=*/true, 0.4), Decision::kCommit);
  wakes.join();
}

}  // namespace
}  // namespace ladder
