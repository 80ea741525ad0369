#include "common/testing/stream_order.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "common/testing/expect_throws.hpp"
#include "common/testing/rank_test.hpp"

namespace ladder {
namespace {

class StreamOrderTest : public RankTest {
 protected:
  WorkPtr send() { return streams_.send(at::full({100}, rank_), next_, 0); }
  WorkPtr receive() { return streams_.recv(received_, previous_, 0); }

  World world_ = synchronous_world();
  StreamOrder streams_{world_.comm(), /*patience_s=*/0.5};
  at::Tensor received_ = at::zeros({100}, at::kLong);
};

// Around a ring. If each rank receives first, nobody ever sends; one that sends first is enough.
TEST_ON_RANKS(StreamOrderTest, OperationsWaitForThoseBeforeThem) {
  if (size_ == 1) return;
  WorkPtr first = rank_ == 0 ? send() : receive();
  WorkPtr second = rank_ == 0 ? receive() : send();
  second->wait();
  first->wait();
  EXPECT_EQ(received_[99].item<int>(), previous_);

  first = receive();
  second = send();
  const std::string who = concat("rank ", rank_, " of ", size_, ": ");
  expect_throws<CheckError>([&] { second->wait(); }, {who + "send waits behind another operation"});
  expect_throws<CheckError>([&] { first->wait(); }, {who + "recv is not done after "});
}

// Rank 0 waits for a message that comes only after the sum, in another group or in the same.
TEST_ON_RANKS(StreamOrderTest, SumsPassMessagesOfOtherGroups) {
  if (size_ == 1) return;
  const auto part = streams_.split(0, 0);
  const auto start_sum = [](Communicator& comm) { return comm.all_reduce(at::full({1}, 1)); };
  WorkPtr message = rank_ == 0 ? receive() : nullptr;
  start_sum(*part)->wait();
  if (rank_ == size_ - 1) message = send();
  if (message != nullptr) message->wait();

  message = rank_ == 0 ? receive() : nullptr;
  const WorkPtr sum = start_sum(streams_);
  expect_throws<CheckError>([&] { sum->wait(); }, {"all_reduce", " is not done after "});
}

}  // namespace
}  // namespace ladder
