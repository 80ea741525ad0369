// Tensors on GPUs, over every transport that carries them: staged through host memory, on any
// number of ranks, and NCCL where each rank has a GPU of its own.
#include <ATen/Functions.h>
#include <ATen/cuda/Sleep.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/comm/contract/rank_values.hpp"
#include "common/comm/forwarding_communicator.hpp"
#include "common/comm/nccl/fold_kernel.hpp"
#include "common/comm/tree_fold.hpp"
#include "common/core/check.hpp"
#include "common/core/cuda_device.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/rank_test.hpp"

namespace ladder {
namespace {

at::Tensor on_gpu(const at::Tensor& values) {
  return values.to(at::kCUDA);
}

// A transport and the order in which it adds up.
struct Way {
  std::string name;
  std::unique_ptr<World> world;
  bool is_ordered = true;
};

class GpuCommunicator : public RankTest {
 protected:
  GpuCommunicator() {
    const Transport staged = size_ == 1 ? Transport::kAuto : Transport::kMpi;
    add("staged", staged, {}, true);
    if (num_cuda_devices() < size_) return;  // NCCL refuses two ranks on one GPU
    add("nccl", Transport::kNccl, {.reduction = Reduction::kNative}, false);
    add("nccl, ordered", Transport::kNccl, {.reduction = Reduction::kOrdered}, true);
  }
  void add(const char* name, Transport transport, const NcclOptions& options, bool is_ordered) {
    ways_.push_back(
        {name, std::make_unique<World>(transport, Link(), at::kCUDA, options), is_ordered});
  }
  // The tolerance is no guess: of all orders in which these values of up to 4 ranks can be added
  // up, none is farther from rank order than 6.5e-3 in 16 bits and 1.1e-7 in fp32.
  ::testing::AssertionResult is_sum(const Way& way, const at::Tensor& sum,
                                    const at::Tensor& wanted) {
    if (way.is_ordered) return bits_equal(sum.cpu(), wanted);
    const bool is_narrow = wanted.element_size() == 2;
    return close_in_norm(sum.cpu(), wanted, is_narrow ? 1e-2 : 1e-6);
  }

  std::vector<Way> ways_;
};

TEST_ON_PROCESSES(GpuCommunicator, AddsUpEveryType) {
  for (const Way& way : ways_) {
    Communicator& comm = way.world->comm();
    for (const at::ScalarType type : kReducible) {
      for (const std::int64_t numel : {0, 1, 3, 1000, 100'003}) {
        SCOPED_TRACE(concat(way.name, ", ", numel, " ", type));
        const at::Tensor sum = on_gpu(values_of(rank_, numel, type));
        const auto version = sum._version();
        comm.all_reduce(sum)->wait();
        EXPECT_TRUE(is_sum(way, sum, fold_of_all(size_, numel, type)));
        EXPECT_EQ(sum._version(), version);

        const std::int64_t all = numel * size_;
        const at::Tensor full = on_gpu(values_of(rank_, all, type));
        const at::Tensor shard = full.narrow(0, rank_ * numel, numel);
        comm.reduce_scatter(full, shard)->wait();
        EXPECT_TRUE(
            is_sum(way, shard, fold_of_all(size_, all, type).narrow(0, rank_ * numel, numel)));
      }
    }
  }
}

TEST_ON_PROCESSES(GpuCommunicator, MovesTensors) {
  for (const Way& way : ways_) {
    SCOPED_TRACE(way.name);
    Communicator& comm = way.world->comm();
    const at::Tensor full = at::zeros({size_ * 5}, on_gpu(at::zeros({1})).options());
    comm.all_gather(at::full({5}, rank_ + 1, full.options()), full)->wait();
    EXPECT_TRUE(
        bits_equal(full.cpu(), at::arange(1, size_ + 1).repeat_interleave(5).to(at::kFloat)));
    for (int root = 0; root < size_; ++root) {
      const at::Tensor tensor = on_gpu(values_of(rank_, 77, at::kBFloat16));
      comm.broadcast(tensor, root)->wait();
      EXPECT_TRUE(bits_equal(tensor.cpu(), values_of(root, 77, at::kBFloat16)));
    }
    if (size_ == 1) continue;
    const at::Tensor received = on_gpu(at::zeros({9}));
    const WorkPtr receipt = comm.recv(received, previous_, 3);
    comm.send(on_gpu(values_of(rank_, 9, at::kFloat)), next_, 3)->wait();
    receipt->wait();
    EXPECT_TRUE(bits_equal(received.cpu(), values_of(previous_, 9, at::kFloat)));
  }
}

// Rank 0 waits for a message that comes only after the sum. Then every rank's messages are done one
// after the other. Over NCCL none of them passes through the host.
TEST_ON_PROCESSES(GpuCommunicator, MessagesTravelInThePromisedOrder) {
  if (size_ == 1) return;
  for (const Way& way : ways_) {
    SCOPED_TRACE(way.name);
    const auto ring = way.world->comm().split(0, rank_);
    ring->promise_message_order();
    const at::Tensor received = on_gpu(at::zeros({1'000'003}));
    const auto send = [&] {
      return ring->send(on_gpu(values_of(rank_, received.numel(), at::kFloat)), next_, 3);
    };
    const auto receive = [&] { return ring->recv(received, previous_, 3); };
    WorkPtr first = rank_ == 0 ? receive() : nullptr;
    const at::Tensor sum = on_gpu(at::ones({1000}));
    way.world->comm().all_reduce(sum)->wait();
    EXPECT_EQ(sum.sum().item<double>(), 1000.0 * size_);
    if (rank_ > 0) first = rank_ == size_ - 1 ? send() : receive();
    WorkPtr second = rank_ == size_ - 1 ? receive() : send();
    first->wait();
    second->wait();
    EXPECT_TRUE(bits_equal(received.cpu(), values_of(previous_, received.numel(), at::kFloat)));
    EXPECT_EQ(ring->traffic()[CommOp::kSend].bytes_sent, 4 * received.numel());
    const Traffic through_host = dynamic_cast<ForwardingCommunicator&>(*ring).inner().traffic();
    const bool is_nccl = way.world->transport() == Transport::kNccl;
    EXPECT_EQ(through_host[CommOp::kSend].calls, is_nccl ? 0 : 1);
  }
}

// What was queued before the call is sent, and what is queued after wait() sees the result.
TEST_ON_PROCESSES(GpuCommunicator, KeepsTheOrderOfTheStream) {
  for (const Way& way : ways_) {
    SCOPED_TRACE(way.name);
    const int sum_of_ranks = size_ * (size_ + 1) / 2;
    const at::Tensor x = on_gpu(at::zeros({1 << 22}));
    for (int i = 0; i < 20; ++i) {
      at::cuda::sleep(50'000'000);  // cycles, in which the host has long called all_reduce()
      x.fill_(rank_ + 1);
      const WorkPtr work = way.world->comm().all_reduce(x);
      work->wait();
      x.mul_(2);
      EXPECT_EQ(x.min().item<int>(), 2 * sum_of_ranks);
      EXPECT_EQ(x.max().item<int>(), 2 * sum_of_ranks);
    }
  }
}

// What the GPU still computes before the operation is not the operation's time. One rank, because
// several would also wait for one another.
TEST_ON_PROCESSES(GpuCommunicator, TheTimeoutCountsFromTheBeginning) {
  if (size_ > 1) return;
  World world(Transport::kNccl, Link(), at::kCUDA, {.timeout_s = 0.5});
  const at::Tensor x = on_gpu(at::ones({10}));
  at::cuda::sleep(4'000'000'000);  // cycles: more than a second on any GPU
  world.comm().all_reduce(x)->wait();
  EXPECT_EQ(x.sum().item<double>(), 10);
}

TEST_ON_PROCESSES(GpuCommunicator, SplitsAndCarriesTensorsOfTheCpu) {
  for (const Way& way : ways_) {
    SCOPED_TRACE(way.name);
    const auto half = way.world->comm().split(rank_ % 2, rank_);
    const at::Tensor ones = on_gpu(at::ones({10}));
    half->all_reduce(ones)->wait();
    EXPECT_EQ(ones.sum().item<double>(), 10.0 * half->size());
    EXPECT_EQ(all_reduce_sum(1.0, *half), half->size());
    half->barrier();
  }
}

TEST_ON_PROCESSES(GpuCommunicator, RefusesTensorsOnTwoDevices) {
  for (const Way& way : ways_) {
    expect_throws<CheckError>(
        [&] { way.world->comm().reduce_scatter(on_gpu(at::zeros({size_})), at::zeros({1})); },
        {"full is on cuda:"});
  }
}

TEST_ON_PROCESSES(GpuCommunicator, NcclNeedsAGpuForEachRank) {
  if (num_cuda_devices() >= size_) return;
  expect_throws<UsageError>([] { World(Transport::kNccl, Link(), at::kCUDA); },
                            {"have the same GPU", "leave --transport out"});
}

// More pieces than one pass takes, the target being one of them or not.
TEST_ON_PROCESSES(GpuCommunicator, TheFoldHasTheBitsOfTheCpu) {
  for (const int num_pieces : {1, 2, 3, 4, 7, 256, 257, 300, 700}) {
    for (const at::ScalarType type : kReducible) {
      std::vector<at::Tensor> pieces;
      std::vector<std::byte*> data;
      for (int r = 0; r < num_pieces; ++r) {
        pieces.push_back(on_gpu(values_of(r, 1001, type)));
        data.push_back(data_of(pieces.back()));
      }
      const int own = num_pieces > 2 ? 2 : 0;
      const at::Tensor target = own > 0 ? pieces[2] : on_gpu(at::zeros({1001}, type));
      fold_on_gpu(data, own, data_of(target), type, 1001, nullptr);
      EXPECT_TRUE(bits_equal(target.cpu(), fold_of_all(num_pieces, 1001, type)))
          << num_pieces << " " << type;
    }
  }
}

}  // namespace
}  // namespace ladder
