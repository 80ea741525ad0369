// What arrives over a paced link waits for the link of the rank that sent it.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "common/comm/contract/rank_values.hpp"
#include "common/comm/paced_communicator.hpp"
#include "common/core/check.hpp"
#include "common/core/timer.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/rank_test.hpp"

namespace ladder {
namespace {

constexpr Link kFastLink = {.latency_us = 1, .gbit_per_s = 100};
constexpr double kSlowSeconds = 0.5;  // on a slow link
constexpr double kSoon = 0.45;        // without one, even on a busy machine

class PacedArrival : public RankTest {
 protected:
  const int next_ = (rank_ + 1) % size_;
  const int previous_ = (rank_ + size_ - 1) % size_;

  // The link of `slow_rank`, and of no other rank, needs kSlowSeconds for this many messages.
  std::unique_ptr<Communicator> group_with_slow(int slow_rank, int num_messages) const {
    const Link slow = {.latency_us = kSlowSeconds * 1e6 / num_messages, .gbit_per_s = 1000};
    return std::make_unique<PacedCommunicator>(comm_.split(0, 0),
                                               rank_ == slow_rank ? slow : kFastLink);
  }
  // The seconds from before any rank has started until all of this is done on this rank.
  double seconds_of(const std::function<void()>& act) const {
    const Timer timer;
    comm_.barrier();
    act();
    const double seconds = timer.seconds();
    comm_.barrier();
    return seconds;
  }
};

// Rank 0 sends three messages over its slow link and gets one over a fast link.
TEST_ON_RANKS(PacedArrival, AReceiveWaitsForTheLinkOfItsSender) {
  if (size_ == 1) return;
  const auto paced = group_with_slow(0, 1);
  const at::Tensor received = at::zeros({3, 4});
  const double seconds = seconds_of([&] {
    const Timer timer;
    if (rank_ == 0) {
      std::vector<WorkPtr> sends;
      for (int i = 0; i < 3; ++i) sends.push_back(paced->send(at::full({4}, float(i)), 1, i / 2));
      paced->recv(received[0], 1, 0)->wait();
      EXPECT_LT(timer.seconds(), kSoon) << "from a fast link";
      for (const WorkPtr& send : sends) send->wait();
    }
    if (rank_ == 1) {
      paced->send(at::ones({4}), 0, 0)->wait();
      const WorkPtr third = paced->recv(received[2], 0, 1);  // of another tag
      const WorkPtr first = paced->recv(received[0], 0, 0);
      const WorkPtr second = paced->recv(received[1], 0, 0);
      EXPECT_FALSE(second->test());
      first->wait();
      EXPECT_FALSE(third->test()) << "the messages queue on the sender's link";
      second->wait();
      EXPECT_LT(timer.seconds(), 2 * kSlowSeconds + kSoon) << "does not wait for the third";
      third->wait();
      EXPECT_TRUE(third->test());
    }
  });
  if (rank_ <= 1) {
    EXPECT_GE(seconds, 3 * kSlowSeconds);
  }
  if (rank_ == 1) {
    EXPECT_TRUE(
        bits_equal(received, at::arange(3, at::kFloat).unsqueeze(1).expand({3, 4}).contiguous()));
  }
}

TEST_ON_RANKS(PacedArrival, ABroadcastWaitsForTheLinkOfItsRoot) {
  if (size_ == 1) return;
  const auto paced = group_with_slow(0, size_ - 1);
  const at::Tensor tensor = at::full({3}, float(rank_));
  EXPECT_LT(seconds_of([&] { paced->broadcast(tensor, size_ - 1)->wait(); }), kSoon);
  EXPECT_TRUE(bits_equal(tensor, at::full({3}, size_ - 1.0f)));
  tensor.fill_(rank_);
  EXPECT_GE(seconds_of([&] { paced->broadcast(tensor, 0)->wait(); }), kSlowSeconds);
  EXPECT_TRUE(bits_equal(tensor, at::zeros({3})));
}

TEST_ON_RANKS(PacedArrival, ASumWaitsForTheSlowestLink) {
  if (size_ == 1) return;
  const auto paced = group_with_slow(size_ - 1, size_ - 1);
  const at::Tensor full = at::ones({2 * size_});
  const at::Tensor shard = at::zeros({2});
  EXPECT_GE(seconds_of([&] { paced->all_reduce(full)->wait(); }), 2 * kSlowSeconds);
  EXPECT_GE(seconds_of([&] { paced->reduce_scatter(full, shard)->wait(); }), kSlowSeconds);
  EXPECT_GE(seconds_of([&] { paced->all_gather(shard, full)->wait(); }), kSlowSeconds);
  EXPECT_TRUE(bits_equal(full, at::full({2 * size_}, float(size_ * size_))));
  // An operation waits for the sends that are before it on the slow link.
  const double after_a_send = seconds_of([&] {
    WorkPtr busy;
    if (rank_ == size_ - 1) busy = paced->send(shard, 0, 0);
    paced->reduce_scatter(full, at::zeros({2}))->wait();
    if (rank_ == 0) paced->recv(shard, size_ - 1, 0)->wait();
    if (busy != nullptr) busy->wait();
  });
  EXPECT_GE(after_a_send, kSlowSeconds + kSlowSeconds / (size_ - 1));
}

TEST_ON_RANKS(PacedArrival, WaitingForAMessageFreesTheCore) {
  if (size_ == 1) return;
  const auto paced = group_with_slow(0, 1);
  const at::Tensor tensor = at::zeros({4});
  const WorkPtr work = rank_ == 0   ? paced->send(tensor, 1, 0)
                       : rank_ == 1 ? paced->recv(tensor, 0, 0)
                                    : nullptr;
  comm_.barrier();
  const std::clock_t before = std::clock();
  if (work != nullptr) work->wait();
  const double cpu_seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(cpu_seconds, kSlowSeconds / 2);
}

// A rank computes until test() reports that the message is here; wait() then has nothing to do.
TEST_ON_RANKS(PacedArrival, ComputationHidesTheSendersLink) {
  if (size_ == 1) return;
  const auto paced = group_with_slow(0, 1);
  const at::Tensor tensor = at::zeros({1});
  const double seconds = seconds_of([&] {
    if (rank_ == 0) paced->send(at::ones({1}), 1, 0)->wait();
    if (rank_ != 1) return;
    const WorkPtr work = paced->recv(tensor, 0, 0);
    int num_tests = 0;
    for (; !work->test(); ++num_tests) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_GE(num_tests, 10);
    const Timer waiting;
    work->wait();
    EXPECT_LT(waiting.seconds(), 0.2);
    EXPECT_EQ(tensor.item<float>(), 1.0f);
  });
  if (rank_ <= 1) {
    EXPECT_GE(seconds, kSlowSeconds);
  }
}

// Every second message is empty: it has no link time, and the others keep theirs.
TEST_ON_RANKS(PacedArrival, MessagesOfOneTagKeepTheirOrder) {
  if (size_ == 1) return;
  PacedCommunicator paced(comm_.split(0, 0), kFastLink);
  const Traffic before = paced.traffic();
  std::vector<at::Tensor> received;
  std::vector<WorkPtr> works;
  for (int i = 0; i < 12; ++i) {
    received.push_back(at::zeros({i % 2 * i}));
    works.push_back(paced.recv(received.back(), previous_, i % 3));
  }
  for (int i = 0; i < 12; ++i) {
    works.push_back(paced.send(at::full({i % 2 * i}, float(rank_ * 100 + i)), next_, i % 3));
    works[static_cast<std::size_t>(11 - i)]->test();  // polls the later ones first
  }
  for (auto work = works.rbegin(); work != works.rend(); ++work) (*work)->wait();
  for (int i = 0; i < 12; ++i) {
    EXPECT_TRUE(bits_equal(received[static_cast<std::size_t>(i)],
                           at::full({i % 2 * i}, float(previous_ * 100 + i))));
  }
  Traffic sent = paced.traffic();
  sent -= before;
  Traffic expected;
  expected[CommOp::kSend] = {12, (1 + 3 + 5 + 7 + 9 + 11) * 4, 6};
  expected[CommOp::kRecv] = {12, 0, 0};
  EXPECT_EQ(sent, expected) << "without the link times";
}

// Nothing is buffered, so a send that waited for its receiver would wait forever.
TEST_ON_RANKS(PacedArrival, StartingNeverWaitsForTheOtherRank) {
  if (size_ == 1) return;
  World synchronous = synchronous_world();
  PacedCommunicator paced(synchronous.comm().split(0, 0), kFastLink);
  for (const std::int64_t numel : {1, 3, 5000}) {
    const at::Tensor received = at::zeros({numel});
    const at::Tensor sum = values_of(rank_, numel, at::kFloat);
    const WorkPtr sent = paced.send(at::full({numel}, float(rank_)), next_, 0);
    const WorkPtr reduced = paced.all_reduce(sum);
    EXPECT_FALSE(sent->test());
    comm_.barrier();  // until here, no rank receives
    const WorkPtr arriving = paced.recv(received, previous_, 0);
    sent->wait();
    arriving->wait();
    reduced->wait();
    EXPECT_TRUE(bits_equal(received, at::full({numel}, float(previous_))));
    EXPECT_TRUE(bits_equal(sum, fold_of_all(size_, numel, at::kFloat)));
  }
}

// The receiver's error is the inner communicator's, and the next message is not disturbed.
TEST_ON_RANKS(PacedArrival, AMessageOfAnotherLengthIsFound) {
  if (size_ == 1) return;
  PacedCommunicator paced(comm_.split(0, 0), kFastLink);
  if (rank_ == 0) {
    paced.send(at::ones({3}), 1, 0)->wait();
    paced.send(at::full({2}, 7.0f), 1, 0)->wait();
  }
  if (rank_ == 1) {
    const at::Tensor received = at::zeros({2});
    const WorkPtr wrong = paced.recv(received, 0, 0);
    EXPECT_THROW(wrong->wait(), CheckError);
    paced.recv(received, 0, 0)->wait();
    EXPECT_TRUE(bits_equal(received, at::full({2}, 7.0f)));
  }
  comm_.barrier();
}

}  // namespace
}  // namespace ladder
