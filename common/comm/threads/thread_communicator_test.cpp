// What only the threads transport promises. Whatever all transports of several ranks do is tested
// in reduction_test.cpp, movement_test.cpp, progress_test.cpp, errors_test.cpp and
// disorder_test.cpp.
#include "common/comm/threads/thread_communicator.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "common/comm/contract/rank_values.hpp"
#include "common/comm/threads/run_as_threads.hpp"
#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/testing/closeness.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

// Two ranks in one thread, which shows what needs no other thread's help: nobody ever waits for
// what is not done.
class TwoRanks : public ::testing::Test {
 protected:
  std::vector<std::unique_ptr<ThreadCommunicator>> ranks_ = ThreadCommunicator::create(2);
};

TEST_F(TwoRanks, AnOperationIsDoneWhenTheLastRankHasStartedIt) {
  const at::Tensor a = values_of(0, 1001, at::kFloat);
  const at::Tensor b = values_of(1, 1001, at::kFloat);
  const WorkPtr first = ranks_[0]->all_reduce(a);
  EXPECT_FALSE(first->test());
  EXPECT_TRUE(bits_equal(a, values_of(0, 1001, at::kFloat))) << "untouched until then";
  const WorkPtr last = ranks_[1]->all_reduce(b);
  EXPECT_TRUE(last->test());
  EXPECT_TRUE(first->test());
  EXPECT_TRUE(bits_equal(a, fold_of_all(2, 1001, at::kFloat)));
  EXPECT_TRUE(bits_equal(b, a));
}

TEST_F(TwoRanks, ASendIsDoneWhenItIsReceived) {
  const at::Tensor received = at::zeros({3});
  const WorkPtr sent = ranks_[0]->send(at::full({3}, 4.0f), 1, 7);
  const WorkPtr of_another_tag = ranks_[1]->recv(at::zeros({3}), 0, 8);
  EXPECT_FALSE(sent->test());
  EXPECT_FALSE(of_another_tag->test());
  ranks_[1]->recv(received, 0, 7)->wait();
  EXPECT_TRUE(sent->test());
  EXPECT_TRUE(bits_equal(received, at::full({3}, 4.0f)));
  EXPECT_FALSE(of_another_tag->test());
}

TEST_F(TwoRanks, AReceiveMayBeFirst) {
  const at::Tensor received = at::zeros({2, 3});
  const WorkPtr first = ranks_[1]->recv(received[0], 0, 7);
  const WorkPtr second = ranks_[1]->recv(received[1], 0, 7);
  ranks_[0]->send(at::full({3}, 1.0f), 1, 7)->wait();
  EXPECT_TRUE(first->test());
  EXPECT_FALSE(second->test());
  ranks_[0]->send(at::full({3}, 2.0f), 1, 7)->wait();
  EXPECT_TRUE(second->test());
  EXPECT_EQ(received[0][0].item<float>(), 1.0f);
  EXPECT_EQ(received[1][0].item<float>(), 2.0f);
}

TEST_F(TwoRanks, EmptyMessagesMeetNobody) {
  EXPECT_TRUE(ranks_[0]->send(at::zeros({0}), 1, 0)->test());
  EXPECT_TRUE(ranks_[1]->recv(at::zeros({0}), 0, 0)->test());
  const WorkPtr sent = ranks_[0]->send(at::ones({1}), 1, 0);
  EXPECT_FALSE(sent->test());
}

TEST_F(TwoRanks, ADoneOperationHoldsNoTensor) {
  at::Tensor tensor = at::ones({5});
  const WorkPtr first = ranks_[0]->all_reduce(tensor);
  EXPECT_GT(tensor.use_count(), 1) << "a started one does";
  const WorkPtr last = ranks_[1]->all_reduce(at::ones({5}));
  EXPECT_EQ(tensor.use_count(), 1);
}

TEST_F(TwoRanks, NothingIsCopiedOnTheWay) {
  install_memory_ledger();
  const at::Tensor tensors = at::ones({2, 30000});
  const at::Tensor shards = at::ones({2, 15000});
  reset_memory_peaks();
  const std::int64_t before = read_memory().total_live_bytes;
  for (const auto& rank : ranks_) rank->all_reduce(tensors[rank->rank()]);
  for (const auto& rank : ranks_) rank->reduce_scatter(tensors[rank->rank()], shards[rank->rank()]);
  for (const auto& rank : ranks_) rank->all_gather(shards[rank->rank()], tensors[rank->rank()]);
  for (const auto& rank : ranks_) rank->broadcast(tensors[rank->rank()], 1);
  const WorkPtr sent = ranks_[0]->send(tensors[0], 1, 0);
  ranks_[1]->recv(tensors[1], 0, 0)->wait();
  EXPECT_EQ(read_memory().peak_bytes, before);
}

// What the last rank cannot do, all ranks learn.
TEST(ThreadWorks, FailOnAllRanks) {
  install_memory_ledger();
  const auto ranks = ThreadCommunicator::create(3);
  const at::Tensor tensors = at::ones({3, 3000});
  std::vector<WorkPtr> works;
  set_memory_cap(1);  // no scratch for rank 2, whose shard is in place
  for (const auto& rank : ranks) {
    const at::Tensor full = tensors[rank->rank()];
    works.push_back(rank->reduce_scatter(full, full.narrow(0, 1000 * rank->rank(), 1000)));
  }
  set_memory_cap(0);
  for (const WorkPtr& work : works) {
    EXPECT_THAT(
        [&] { work->wait(); },
        ThrowsMessage<CheckError>(HasSubstr("of 3: reduce_scatter: out of memory: 4000 bytes")));
  }
}

class Disagreement : public ::testing::Test {
 protected:
  using Call = std::function<WorkPtr(Communicator&)>;
  // On two ranks, which do different things and then wait. Returns what each of them throws.
  static std::vector<std::string> errors_of(const Call& on_rank_0, const Call& on_rank_1) {
    const auto ranks = ThreadCommunicator::create(2);
    const std::vector<WorkPtr> works = {};
    const WorkPtr first = on_rank_0(*ranks[0]);
    const WorkPtr second = on_rank_1(*ranks[1]);
    return {error_of(*first), error_of(*second)};
  }
  static std::string error_of(Work& work) {
    try {
      work.wait();
    } catch (const CheckError& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(Disagreement, OnTheOperationIsFound) {
  const auto errors = errors_of([](auto& comm) { return comm.all_reduce(at::ones({2})); },
                                [](auto& comm) { return comm.broadcast(at::ones({2}), 0); });
  EXPECT_EQ(errors[0],
            "rank 0 of 2: all_reduce: rank 1 called broadcast; all ranks must call the same "
            "operations in the same order");
  EXPECT_THAT(errors[1], StartsWith("rank 1 of 2: broadcast: rank 0 called all_reduce;"));
}

TEST_F(Disagreement, OnTheRootIsFound) {
  const auto errors = errors_of([](auto& comm) { return comm.broadcast(at::ones({2}), 0); },
                                [](auto& comm) { return comm.broadcast(at::ones({2}), 1); });
  EXPECT_EQ(errors[0], "rank 0 of 2: broadcast: the root is 0 here and 1 on rank 1");
  EXPECT_EQ(errors[1], "rank 1 of 2: broadcast: the root is 1 here and 0 on rank 0");
}

TEST_F(Disagreement, OnTheLengthIsFound) {
  const at::Tensor tensors = at::ones({2, 8});
  const Call calls[] = {
      [&](Communicator& comm) {
        return comm.all_reduce(tensors[comm.rank()].narrow(0, 0, 4 * comm.rank() + 4));
      },
      [&](Communicator& comm) {
        const std::int64_t numel = 2 * comm.rank() + 2;
        return comm.reduce_scatter(tensors[comm.rank()].narrow(0, 0, 2 * numel),
                                   at::zeros({numel}));
      },
      [&](Communicator& comm) {
        const std::int64_t numel = 2 * comm.rank() + 2;
        return comm.all_gather(at::zeros({numel}), tensors[comm.rank()].narrow(0, 0, 2 * numel));
      }};
  for (const Call& call : calls) {
    const auto errors = errors_of(call, call);
    EXPECT_THAT(errors[0], HasSubstr("rank 1 sent 32 bytes where 16 were expected; all ranks"));
    EXPECT_THAT(errors[1], HasSubstr("rank 0 sent 16 bytes where 32 were expected; all ranks"));
    EXPECT_TRUE(bits_equal(tensors, at::ones({2, 8}))) << "nothing is written";
  }
}

TEST_F(Disagreement, OnTheDtypeOfASumIsFound) {
  const auto errors =
      errors_of([](auto& comm) { return comm.all_reduce(at::ones({2})); },
                [](auto& comm) { return comm.all_reduce(at::ones({2}, at::kInt)); });
  EXPECT_THAT(errors[0], HasSubstr("rank 1 sent Int where Float was expected"));
  EXPECT_THAT(errors[1], HasSubstr("rank 0 sent Float where Int was expected"));
}

TEST_F(Disagreement, IsThrownByEveryRankThatDiffersFromAnother) {
  EXPECT_NO_THROW(run_as_threads(4, [](Communicator& comm) {
    const at::Tensor tensor = at::ones({comm.rank() == 2 ? 3 : 5});
    const WorkPtr work = comm.all_reduce(tensor);
    const char* const part = comm.rank() == 2 ? "rank 0 sent 20 bytes where 12 were expected"
                                              : "rank 2 sent 12 bytes where 20 were expected";
    EXPECT_THAT(
        [&] { work->wait(); },
        ThrowsMessage<CheckError>(AllOf(
            StartsWith(concat("rank ", comm.rank(), " of 4: all_reduce: ")), HasSubstr(part))));
    EXPECT_EQ(all_reduce_sum(1.0, comm), 4.0) << "the next operation is not disturbed";
  }));
}

// One rank broadcasts, the others split: here, waiting would help nobody.
TEST_F(Disagreement, OnASplitIsFound) {
  run_as_threads(3, [](Communicator& comm) {
    if (comm.rank() == 1) {
      const WorkPtr work = comm.broadcast(at::ones({1}), 0);
      EXPECT_THAT([&] { work->wait(); },
                  ThrowsMessage<CheckError>(HasSubstr("rank 0 called split")));
    } else {
      EXPECT_THAT([&] { comm.split(0, 0); },
                  ThrowsMessage<CheckError>(HasSubstr("split: rank 1 called broadcast")));
    }
  });
}

// A rank that polls sees the result as soon as test() says so, however long the last rank works.
TEST(ThreadWorks, AreNotDoneBeforeTheirResultIsThere) {
  const std::int64_t numel = 2'000'000;
  run_as_threads(2, [&](Communicator& comm) {
    for (int round = 0; round < 5; ++round) {
      const at::Tensor tensor = at::ones({numel});
      comm.barrier();
      if (comm.rank() == round % 2) {  // starts last
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        comm.all_reduce(tensor)->wait();
      } else {
        const WorkPtr work = comm.all_reduce(tensor);
        while (!work->test()) {
        }
        EXPECT_EQ(tensor[numel - 1].item<float>(), 2.0f);
      }
    }
  });
}

// Each of these rounds makes its groups anew, and drops them while others still use theirs.
TEST(ThreadGroups, AreManyAndShort) {
  run_as_threads(4, [](Communicator& comm) {
    for (int round = 0; round < 200; ++round) {
      const auto part = comm.split((comm.rank() + round) % 2, -comm.rank());
      const auto pair = part->split(0, part->rank());
      EXPECT_EQ(all_reduce_sum(1.0 + comm.rank(), *pair), comm.rank() % 2 == 0 ? 4.0 : 6.0);
    }
  });
}

TEST(ThreadCommunicators, AreAtLeastOne) {
  EXPECT_THROW(ThreadCommunicator::create(0), CheckError);
  const auto alone = ThreadCommunicator::create(1);
  EXPECT_EQ(all_reduce_sum(2.5, *alone[0]), 2.5);
  alone[0]->barrier();
  EXPECT_EQ(alone[0]->split(-1, 0), nullptr);
}

}  // namespace
}  // namespace ladder
