#include "common/comm/mesh.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "common/comm/self_communicator.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/core/check.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/rank_test.hpp"

namespace ladder {
namespace {

class MeshTest : public RankTest {
 protected:
  std::vector<int> possible_num_stages() const {
    std::vector<int> divisors;
    for (int p = 1; p <= size_; ++p) {
      if (size_ % p == 0) divisors.push_back(p);
    }
    return divisors;
  }
  // The ranks that are in a group, in its order.
  at::Tensor world_ranks_in(Communicator& group) const {
    const at::Tensor ranks = at::full({group.size()}, -1, at::kInt);
    group.all_gather(at::full({1}, rank_, at::kInt), ranks)->wait();
    return ranks;
  }
};

TEST_ON_RANKS(MeshTest, WithoutAPipelineEveryRankIsAReplica) {
  const Mesh mesh = comm_;
  EXPECT_EQ(&mesh.world, &comm_);
  EXPECT_EQ(&mesh.data_parallel, &comm_);
  EXPECT_EQ(mesh.num_replicas(), size_);
  EXPECT_EQ(mesh.dp_rank(), rank_);
  EXPECT_EQ(mesh.num_stages(), 1);
  EXPECT_EQ(mesh.pp_rank(), 0);
  EXPECT_EQ(all_reduce_sum(rank_ + 0.5, mesh.stages), rank_ + 0.5);
}

TEST_ON_RANKS(MeshTest, ARankIsAStageOfAReplica) {
  for (const int num_stages : possible_num_stages()) {
    const Mesh mesh = Mesh::split(comm_, num_stages);
    EXPECT_EQ(&mesh.world, &comm_);
    EXPECT_EQ(mesh.num_stages(), num_stages);
    const int num_replicas = size_ / num_stages;
    EXPECT_EQ(mesh.num_replicas(), num_replicas);
    EXPECT_EQ(mesh.dp_rank(), rank_ % num_replicas);
    EXPECT_EQ(mesh.pp_rank(), rank_ / num_replicas);
    const int first_replica = rank_ - rank_ % num_replicas;
    EXPECT_TRUE(bits_equal(world_ranks_in(mesh.data_parallel),
                           at::arange(first_replica, first_replica + num_replicas, at::kInt)));
    EXPECT_TRUE(bits_equal(world_ranks_in(mesh.stages),
                           at::arange(rank_ % num_replicas, size_, num_replicas, at::kInt)));
    EXPECT_EQ(mesh_shape(size_, num_stages).rank_of(mesh.pp_rank(), mesh.dp_rank()), rank_);
  }
}

TEST_ON_RANKS(MeshTest, TensorRanksAreNeighborsAndStagesAreFarApart) {
  for (int num_stages = 1; num_stages <= size_; ++num_stages) {
    for (int t = 1; num_stages * t <= size_; ++t) {
      if (size_ % (num_stages * t) != 0) continue;
      SCOPED_TRACE(concat(num_stages, " stages of ", t, " tensor ranks"));
      const Mesh mesh = Mesh::split(comm_, num_stages, t);
      const int num_replicas = size_ / (num_stages * t);
      EXPECT_EQ(mesh.num_replicas(), num_replicas);
      EXPECT_EQ(mesh.num_tensor_ranks(), t);
      EXPECT_EQ((mesh.pp_rank() * num_replicas + mesh.dp_rank()) * t + mesh.tp_rank(), rank_);
      EXPECT_EQ(mesh.model_parallel.rank(), mesh.pp_rank() * t + mesh.tp_rank());
      const MeshShape shape = mesh_shape(size_, num_stages, t);
      EXPECT_EQ(shape.rank_of(mesh.pp_rank(), mesh.dp_rank(), mesh.tp_rank()), rank_);
      const int stage = num_replicas * t, first_of_stage = mesh.pp_rank() * stage;
      if (t > 1) {  // else a group of one with a meter and a rank of its own
        EXPECT_TRUE(
            bits_equal(world_ranks_in(mesh.tensor_parallel),
                       at::arange(rank_ - mesh.tp_rank(), rank_ - mesh.tp_rank() + t, at::kInt)));
      }
      EXPECT_TRUE(bits_equal(
          world_ranks_in(mesh.data_parallel),
          at::arange(first_of_stage + mesh.tp_rank(), first_of_stage + stage, t, at::kInt)));
      EXPECT_TRUE(
          bits_equal(world_ranks_in(mesh.stages),
                     at::arange(mesh.dp_rank() * t + mesh.tp_rank(), size_, stage, at::kInt)));
      const at::Tensor all = at::arange(size_, at::kInt).view({num_stages, num_replicas, t});
      EXPECT_TRUE(bits_equal(world_ranks_in(mesh.model_parallel),
                             all.select(1, mesh.dp_rank()).flatten().contiguous()));
    }
  }
}

// Sends in both groups, and returns what they should add to the world's meter.
Traffic use_groups_of(const Mesh& mesh) {
  mesh.data_parallel.all_reduce(at::ones({101}))->wait();
  mesh.stages.broadcast(at::ones({7}), 0)->wait();
  const Machines of_stages = mesh.stages.machines();
  Traffic expected = all_reduce_traffic(101, 4, mesh.num_replicas(), mesh.dp_rank(),
                                        mesh.data_parallel.machines());
  expected += broadcast_traffic(7, 4, mesh.num_stages(), mesh.pp_rank(), 0, of_stages);
  WorkPtr sent;
  if (mesh.pp_rank() + 1 < mesh.num_stages()) {
    sent = mesh.stages.send(at::full({3}, 1.0f * mesh.pp_rank()), mesh.pp_rank() + 1, 0);
    expected += send_traffic(3, 4, of_stages.are_apart(mesh.pp_rank(), mesh.pp_rank() + 1));
  }
  if (mesh.pp_rank() > 0) {
    const at::Tensor received = at::zeros({3});
    mesh.stages.recv(received, mesh.pp_rank() - 1, 0)->wait();
    EXPECT_TRUE(bits_equal(received, at::full({3}, mesh.pp_rank() - 1.0f)));
    expected[CommOp::kRecv].calls = 1;
  }
  if (sent != nullptr) sent->wait();
  return expected;
}

TEST_ON_RANKS(MeshTest, TrafficOfTheGroupsIsTheWorlds) {
  for (const int num_stages : possible_num_stages()) {
    const Traffic at_first = comm_.traffic();
    const Mesh mesh = Mesh::split(comm_, num_stages);
    EXPECT_EQ(comm_.traffic(), at_first) << "splitting is not counted";
    Traffic expected;
    const Traffic sent = sent_in(comm_, [&] { expected = use_groups_of(mesh); });
    EXPECT_EQ(sent, expected) << num_stages << " stages";
    EXPECT_EQ(mesh.stages.traffic(), comm_.traffic());
    EXPECT_EQ(mesh.data_parallel.traffic(), comm_.traffic());
  }
}

// The last stage has values. Three replicas of two stages show the difference: over all six ranks,
// the tree is x0 + (x1 + x2).
TEST_ON_RANKS(MeshTest, SumsOfOneStageAreThoseOfItsReplicasAlone) {
  for (const int num_stages : possible_num_stages()) {
    const Mesh mesh = Mesh::split(comm_, num_stages);
    const double own = std::pow(10.0, 8 * (mesh.dp_rank() % 3)) / 3;
    double value = mesh.pp_rank() + 1 == num_stages ? own : 0;
    all_reduce_sum(std::span(&value, 1), mesh);
    EXPECT_EQ(value, all_reduce_sum(own, mesh.data_parallel));
  }
}

TEST_ON_RANKS(MeshTest, CopiesShareTheGroups) {
  std::optional<Mesh> original = Mesh::split(comm_, size_);
  const Mesh copy = *original;
  original.reset();
  EXPECT_EQ(copy.pp_rank(), rank_);
  EXPECT_EQ(all_reduce_sum(1.0, copy.stages), size_);
  std::optional<Mesh> without = Mesh(comm_);
  const Mesh copy_without = *without;
  without.reset();
  EXPECT_EQ(all_reduce_sum(1.0, copy_without.stages), 1.0);
}

TEST_ON_RANKS(MeshTest, RefusesStagesThatDoNotDivideTheRanks) {
  for (const int num_stages : {size_ + 1, 2 * size_, 7}) {
    expect_throws<UsageError>([&] { Mesh::split(comm_, num_stages); },
                              {concat("a replica has ", num_stages, " stages"),
                               concat("does not divide ", size_, " rank"),
                               concat("start a multiple of ", num_stages, " ranks")});
  }
  for (const int num_stages : {0, -1, -size_}) {
    expect_throws<UsageError>(
        [&] { Mesh::split(comm_, num_stages); },
        {concat("a replica has ", num_stages, " stages, it must have at least 1")});
  }
  SelfCommunicator alone;
  EXPECT_THROW(Mesh::split(alone, 2), UsageError);
  EXPECT_EQ(Mesh::split(alone, 1).num_stages(), 1);
}

}  // namespace
}  // namespace ladder
