// A rank that fails, or returns early, never leaves the others waiting.
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <thread>

#include "common/comm/threads/run_as_threads.hpp"
#include "common/comm/threads/thread_communicator.hpp"
#include "common/core/check.hpp"
#include "common/testing/closeness.hpp"

namespace ladder {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int kNumRanks = 3;
constexpr int kEnding = 1;  // the rank that ends

// Every operation, as one that cannot be done without rank kEnding.
using Act = std::function<void(Communicator&)>;
const std::map<std::string, Act> kWaits = {
    {"all_reduce", [](Communicator& comm) { comm.all_reduce(at::ones({4}))->wait(); }},
    {"reduce_scatter",
     [](Communicator& comm) {
       comm.reduce_scatter(at::ones({4 * kNumRanks}), at::zeros({4}))->wait();
     }},
    {"all_gather",
     [](Communicator& comm) { comm.all_gather(at::ones({4}), at::ones({4 * kNumRanks}))->wait(); }},
    {"broadcast", [](Communicator& comm) { comm.broadcast(at::ones({4}), 0)->wait(); }},
    {"send", [](Communicator& comm) { comm.send(at::ones({4}), kEnding, 0)->wait(); }},
    {"recv", [](Communicator& comm) { comm.recv(at::ones({4}), kEnding, 0)->wait(); }},
    {"barrier", [](Communicator& comm) { comm.barrier(); }},
    {"split", [](Communicator& comm) { comm.split(0, 0); }},
};

void nap() {
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
}

TEST(AThreadThatFails, WakesThoseThatWait) {
  for (const auto& [name, wait] : kWaits) {
    for (const bool is_late : {false, true}) {  // the others wait already, or are about to
      SCOPED_TRACE(name);
      const auto body = [&](Communicator& comm) {
        if (comm.rank() == kEnding) {
          if (is_late) nap();
          throw CheckError("the disk is full");
        }
        if (!is_late) nap();
        EXPECT_THAT([&] { wait(comm); }, ThrowsMessage<CheckError>(concat(
                                             "rank ", comm.rank(), " of 3: ", name,
                                             ": rank 1 of all 3 has failed: the disk is full")));
      };
      EXPECT_THAT([&] { run_as_threads(kNumRanks, body); },
                  ThrowsMessage<CheckError>("rank 1: the disk is full"));
    }
  }
}

// The others wait for each other, and test().
TEST(AThreadThatFails, WakesThoseThatDoNotNeedIt) {
  const auto body = [](Communicator& comm) {
    const auto part = comm.split(comm.rank() == kEnding ? 0 : 1, 0);
    if (comm.rank() == kEnding) {
      nap();
      throw UsageError("--lr is -1");
    }
    const WorkPtr work = part->recv(at::ones({4}), 1 - part->rank(), 0);
    if (comm.rank() == 0) work->wait();
    while (!work->test()) std::this_thread::yield();
  };
  EXPECT_THAT([&] { run_as_threads(kNumRanks, body); },
              ThrowsMessage<UsageError>("rank 1: --lr is -1"));
}

TEST(AThreadThatReturns, IsMissedWhereItIsNeeded) {
  for (const auto& [name, wait] : kWaits) {
    for (const bool is_late : {false, true}) {
      SCOPED_TRACE(name);
      run_as_threads(kNumRanks, [&, &name = name, &wait = wait](Communicator& comm) {
        if (is_late == (comm.rank() == kEnding)) nap();
        if (comm.rank() == kEnding) return;
        EXPECT_THAT([&] { wait(comm); }, ThrowsMessage<CheckError>(concat(
                                             "rank ", comm.rank(), " of 3: ", name,
                                             ": rank 1 of all 3 has ended without taking part")));
      });
    }
  }
}

TEST(AThreadThatReturns, IsNamedByItsNumberInTheProcess) {
  run_as_threads(4, [](Communicator& comm) {
    const auto part = comm.split(comm.rank() % 2, 0);
    if (comm.rank() == 3) return;
    if (comm.rank() == 1) {
      EXPECT_THAT(
          [&] { part->barrier(); },
          ThrowsMessage<CheckError>(HasSubstr("rank 0 of 2: barrier: rank 3 of all 4 has")));
    } else {
      EXPECT_EQ(all_reduce_sum(1.0, *part), 2.0) << "the others are not disturbed";
    }
  });
}

TEST(AThreadThatReturns, HasDoneWhatItStarted) {
  run_as_threads(2, [](Communicator& comm) {
    const at::Tensor tensor = at::full({100}, 1.0f + comm.rank());
    const WorkPtr sum = comm.all_reduce(tensor);
    const at::Tensor message = at::full({100}, 7.0f);
    if (comm.rank() == 1) {
      comm.send(message, 0, 0);
      return;  // without waiting, which is wrong; the tensors live on
    }
    nap();
    sum->wait();
    EXPECT_TRUE(bits_equal(tensor, at::full({100}, 3.0f)));
    comm.recv(tensor, 1, 0)->wait();
    EXPECT_TRUE(bits_equal(tensor, message));
  });
}

TEST(AThreadThatFails, LeavesDoneWhatIsDone) {
  const auto ranks = ThreadCommunicator::create(2);
  const WorkPtr done = ranks[0]->all_reduce(at::ones({1}));
  ranks[1]->all_reduce(at::ones({1}))->wait();
  const WorkPtr pending = ranks[0]->all_reduce(at::ones({1}));
  ranks[1]->abort("enough");
  ranks[0]->abort("the first reason counts");
  EXPECT_TRUE(done->test());
  EXPECT_NO_THROW(done->wait());
  const auto message = [](const char* op) {
    return concat("rank 0 of 2: ", op, ": rank 1 of all 2 has failed: enough");
  };
  EXPECT_THAT([&] { pending->test(); }, ThrowsMessage<CheckError>(message("all_reduce")));
  EXPECT_THAT([&] { ranks[0]->broadcast(at::ones({1}), 0); },
              ThrowsMessage<CheckError>(message("broadcast")));
  EXPECT_THAT([&] { ranks[0]->send(at::ones({1}), 1, 0); },
              ThrowsMessage<CheckError>(message("send")));
}

}  // namespace
}  // namespace ladder
