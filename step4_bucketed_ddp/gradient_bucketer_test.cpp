// On 1, 2, 3 and 4 ranks.
#include "step4_bucketed_ddp/gradient_bucketer.hpp"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>

#include "common/comm/contract/rank_values.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/trace.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/rank_test.hpp"

namespace ladder {
namespace {

// A model whose gradient on each rank is whatever values_of() says.
struct Model {
  Model() : flat(units()) {}

  static std::vector<Unit> units() {
    const auto leaf = [](at::IntArrayRef shape) { return at::ones(shape).set_requires_grad(true); };
    return {{"embedding", {{"wte", leaf({33, 7})}}},
            {"block", {{"weight", leaf({16, 16})}, {"bias", leaf({1})}, {"large", leaf({70, 70})}}},
            {"head", {{"gain", leaf({5})}, {"frozen", at::ones({9})}, {"shift", leaf({5})}}}};
  }

  at::Tensor leaf(std::size_t i) const { return flat.leaves()[i].tensor; }

  // One microbatch of this rank. wte is used twice, as a tied embedding is.
  void backward(int rank, std::uint64_t seed) {
    at::Tensor loss = at::zeros({});
    for (std::size_t i = 0; i < flat.leaves().size(); ++i) {
      const at::Tensor values = values_of(rank, leaf(i).numel(), at::kFloat, seed + i);
      loss = loss + (leaf(i).flatten() * values).sum();
    }
    loss =
        loss + (leaf(0).flatten() * values_of(rank, leaf(0).numel(), at::kFloat, seed + 50)).sum();
    loss.backward();
  }

  // Gradients of one, made in next to no memory.
  void backward_of_sum() {
    at::Tensor loss = at::zeros({});
    for (const auto& [name, leaf] : flat.leaves()) loss = loss + leaf.sum();
    loss.backward();
  }

  FlatModel flat;
  FlatGradients grads{flat};
};

// The gradients that several ranks must end with: each rank's own, without communication, folded.
at::Tensor fold_of_ranks(int num_ranks, std::int64_t num_microbatches, std::uint64_t seed) {
  at::Tensor sum;
  for (int r = 0; r < num_ranks; ++r) {
    Model alone;
    for (std::int64_t j = 0; j < num_microbatches; ++j) {
      alone.backward(r, seed + 100 * static_cast<std::uint64_t>(j));
    }
    sum = r == 0 ? alone.grads.flat().clone() : sum + alone.grads.flat();
  }
  return sum;
}

class GradientBucketerTest : public RankTest {};

TEST_ON_RANKS(GradientBucketerTest, SumsAreTheFoldInRankOrderAndCostWhatTheorySays) {
  Communicator& comm = test_world().comm();
  for (const std::int64_t capacity : {1, 256, 2000, 1 << 20}) {
    Model model;
    const std::vector<GradientBucket> plan = plan_buckets(model.flat.layout(), capacity);
    GradientBucketer bucketer(model.grads, plan, comm);
    for (const std::int64_t m : {1, 3}) {
      const Traffic before = comm.traffic();
      model.grads.zero();
      bucketer.arm(m);
      for (std::int64_t j = 0; j < m; ++j) {
        model.backward(comm.rank(), 7 + 100 * static_cast<std::uint64_t>(j));
      }
      bucketer.wait();
      EXPECT_TRUE(bits_equal(model.grads.flat(), fold_of_ranks(comm.size(), m, 7)))
          << "capacity " << capacity << ", " << m << " microbatches";
      Traffic sent = comm.traffic(), theory;
      sent -= before;
      for (const GradientBucket& bucket : plan) {
        theory += all_reduce_traffic(bucket.numel, 4, comm.size(), comm.rank());
      }
      EXPECT_EQ(sent, theory);
    }
  }
}

TEST_ON_RANKS(GradientBucketerTest, LeavesTheFrozenParameterAlone) {
  Communicator& comm = test_world().comm();
  Model model;
  GradientBucketer bucketer(model.grads, plan_buckets(model.flat.layout(), 1 << 20), comm);
  const FlatTensor& frozen = model.flat.layout().tensors[5];
  const at::Tensor place = model.grads.flat().narrow(0, frozen.start, frozen.padded_numel);
  place.fill_(comm.rank() + 1);
  bucketer.arm(1);
  model.backward(comm.rank(), 1);
  bucketer.wait();
  EXPECT_EQ(place.min().item<float>(), comm.rank() + 1);
  EXPECT_EQ(place.max().item<float>(), comm.rank() + 1);
}

// As on a GPU, where backward runs on a thread of autograd.
TEST_ON_RANKS(GradientBucketerTest, TracesTheBucketsThatAnotherThreadSends) {
  TraceLog log;
  const TraceScope scope(&log);
  Communicator& comm = test_world().comm();
  Model model;
  const std::vector<GradientBucket> plan = plan_buckets(model.flat.layout(), 2000);
  GradientBucketer bucketer(model.grads, plan, comm);
  bucketer.arm(1);
  std::thread([&] { model.backward_of_sum(); }).join();
  bucketer.wait();
  const auto is_bucket = [](const TracedSpan& span) { return std::string(span.name) == "bucket"; };
  EXPECT_EQ(std::count_if(log.spans().begin(), log.spans().end(), is_bucket), std::ssize(plan));
}

// Armed, it may take what the transport takes for all buckets in flight: the other ranks' pieces of
// this rank's slice. On one rank that is nothing, so not even the copy of one bucket goes unseen.
TEST_ON_PROCESSES(GradientBucketerTest, HoldsNoSecondCopyOfTheGradients) {
  install_memory_ledger();
  Communicator& comm = test_world().comm();
  Model model;
  const std::vector<GradientBucket> plan = plan_buckets(model.flat.layout(), 2000);
  std::int64_t transports = 0;
  for (const GradientBucket& bucket : plan) {
    transports += 4 * (comm.size() - 1) * ((bucket.numel + comm.size() - 1) / comm.size());
  }
  const std::int64_t before = read_memory().total_live_bytes;
  GradientBucketer bucketer(model.grads, plan, comm);
  EXPECT_EQ(read_memory().total_live_bytes, before);
  const auto peak_of_backward = [&] {
    reset_memory_peaks();
    model.backward_of_sum();
    return read_memory().peak_bytes - before;
  };
  const std::int64_t unarmed = peak_of_backward();
  bucketer.arm(1);
  const std::int64_t armed = peak_of_backward();
  reset_memory_peaks();
  bucketer.wait();
  const MemoryReading after = read_memory();
  EXPECT_LE(armed, unarmed + transports);
  EXPECT_LE(after.peak_bytes - before, transports);
  EXPECT_EQ(after.total_live_bytes, before);
}

}  // namespace
}  // namespace ladder
