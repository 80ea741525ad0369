// On 1, 2, 3 and 4 ranks. That files are those of one process: parity_ladder_test.
#include "step5_zero1/sharded_state.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "common/comm/traffic_theory.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/rank_test.hpp"
#include "common/testing/temp_folder.hpp"
#include "step5_zero1/exercise/hostile_model.hpp"

namespace ladder {
namespace {

using step5::HostileModel;

// A run on several ranks, as far as saving goes.
struct ShardedRun {
  ShardedRun(const DataOptions& data, Communicator& the_comm)
      : comm(the_comm),
        model(comm.size()),
        plan(plan_shards(model.flat.layout(), comm.size(), comm.rank())),
        optimizer(plan_own_updates(plan, plan.slices_of_full(model.flat.params()),
                                   plan.slices_of_full(model.grads.flat())),
                  plan.numel, plan.layout, {}),
        batches(data, whole_data({})) {}

  TrainState state() { return sharded_state(model.flat, plan, optimizer, batches, group); }

  Communicator& comm;
  ShardGroup group{comm, comm.size()};
  HostileModel model;
  ShardPlan plan;
  Optimizer optimizer;
  BatchStream batches;
};

class ShardedStateTest : public RankTest {
 protected:
  ShardedStateTest() { install_memory_ledger(); }
};

// The rank that writes holds one unit of each buffer; the others hold nothing.
TEST_ON_PROCESSES(ShardedStateTest, SavingHoldsOneUnitAtATimeAndSendsEachSliceOnce) {
  const TempFolder folder;
  ShardedRun run({.source = folder.write("text.txt", std::string(200, 'x')), .context = 16}, comm_);
  std::int64_t largest = 0;
  Traffic theory;
  for (const FlatUnit& unit : run.plan.layout.units) {
    largest = std::max(largest, unit.numel);
    if (rank_ == 0 || unit.numel == 0) continue;
    for (int i = 0; i < 2; ++i) theory += send_traffic(unit.numel / size_, 4);
  }
  if (rank_ == 0) theory[CommOp::kRecv].calls = 2 * 4 * (size_ - 1);
  const TrainState state = run.state();
  reset_memory_peaks();
  const MemoryReading before = read_memory();
  std::int64_t num_visited = 0;
  const Traffic sent = sent_in(comm_, [&] {
    state.optimizer.for_each([&](const std::string&, const at::Tensor&) { ++num_visited; });
  });
  const MemoryReading after = read_memory();
  EXPECT_EQ(after.peak_bytes - before.total_live_bytes, rank_ == 0 ? 2 * 4 * largest : 0);
  EXPECT_EQ(after.total_live_bytes, before.total_live_bytes);
  EXPECT_EQ(num_visited, rank_ == 0 ? 2 * 10 : 0);
  EXPECT_EQ(sent, theory);
}

// Names that do not keep a unit together cost more messages, and nothing else.
struct MixedNames {
  explicit MixedNames(Communicator& the_comm) : comm(the_comm) {}
  static at::Tensor leaf(std::int64_t numel) { return at::ones({numel}).set_requires_grad(true); }

  Communicator& comm;
  ShardGroup group{comm, comm.size()};
  FlatLayout layout =
      plan_flat_layout({{"first", {{"d", leaf(3)}, {"a", leaf(2000)}}},
                        {"second", {{"b", leaf(1)}, {"e", leaf(0)}, {"c", leaf(17)}}}},
                       shard_multiple(comm.size()));
  ShardPlan plan = plan_shards(layout, comm.size(), comm.rank());
  at::Tensor full = values_of(0, layout.numel, at::kFloat);
  at::Tensor shard = at::cat(plan.slices_of_full(full));
  StateTensors source = whole_tensors(named_views(layout, full));
  StateTensors tensors = sharded_tensors(plan, {{"", shard}}, group);

  void fill(const std::string& tensor) {
    tensors.fill(tensor, [&](const std::string& name, const at::Tensor& place) {
      source.fill(name, [&](const std::string&, const at::Tensor& values) { place.copy_(values); });
    });
  }
};

TEST_ON_RANKS(ShardedStateTest, TakesUnitsWhoseNamesAreMixed) {
  MixedNames mixed(comm_);
  const std::string hash = tensor_hash(mixed.tensors);
  EXPECT_EQ(hash, rank_ == 0 ? tensor_hash(mixed.source) : "");
  mixed.shard.zero_();
  for (const StoredTensor& tensor : mixed.source.stored) mixed.fill(tensor.name);
  EXPECT_EQ(tensor_hash(mixed.tensors), hash);
}

TEST_ON_PROCESSES(ShardedStateTest, LoadingHoldsOneTensorAtATime) {
  MixedNames mixed(comm_);
  std::int64_t most = 0;
  for (const StoredTensor& tensor : mixed.source.stored) {
    reset_memory_peaks();
    const std::int64_t before = read_memory().total_live_bytes;
    mixed.fill(tensor.name);
    most = std::max(most, read_memory().peak_bytes - before);
    EXPECT_EQ(read_memory().total_live_bytes, before);
  }
  EXPECT_EQ(most, 4 * 2000);
}

}  // namespace
}  // namespace ladder
