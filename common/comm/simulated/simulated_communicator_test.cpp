#include "common/comm/simulated/simulated_communicator.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "common/comm/mesh.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/core/check.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/expect_throws.hpp"

namespace ladder {
namespace {

at::Tensor floats(std::vector<float> values) {
  return at::tensor(values);
}

TEST(SimulatedCommunicator, AnswersAsIfAllRanksHeldTheSame) {
  SimulatedCommunicator comm(/*rank=*/1, /*size=*/3);
  const at::Tensor tensor = floats({1, 2, 3, 4, 5, 6}), shard = at::ones({2});
  comm.reduce_scatter(tensor, shard)->wait();
  EXPECT_TRUE(bits_equal(shard, floats({9, 12})));
  comm.all_gather(shard, tensor)->wait();
  EXPECT_TRUE(bits_equal(tensor, floats({9, 12, 9, 12, 9, 12})));
  comm.all_reduce(tensor)->wait();
  EXPECT_TRUE(bits_equal(tensor, floats({27, 36, 27, 36, 27, 36})));
  comm.broadcast(tensor, 2)->wait();
  comm.send(tensor, 0, 0)->wait();
  EXPECT_TRUE(bits_equal(tensor, floats({27, 36, 27, 36, 27, 36})));
  comm.recv(shard, 2, 0)->wait();
  EXPECT_TRUE(bits_equal(shard, floats({0, 0})));
  comm.barrier();
}

// In steps 5 to 7 a rank's own shard is its slice of the whole.
TEST(SimulatedCommunicator, AShardMayBeItsOwnSlice) {
  SimulatedCommunicator comm(/*rank=*/2, /*size=*/3);
  const at::Tensor full = floats({1, 2, 3});
  comm.reduce_scatter(full, full.narrow(0, 2, 1))->wait();
  EXPECT_TRUE(bits_equal(full, floats({1, 2, 9})));
  comm.all_gather(full.narrow(0, 2, 1), full)->wait();
  EXPECT_TRUE(bits_equal(full, floats({9, 9, 9})));
}

TEST(SimulatedCommunicator, RefusesWhatOthersRefuse) {
  SimulatedCommunicator comm(/*rank=*/1, /*size=*/3);
  expect_throws<CheckError>([&] { comm.all_gather(at::ones({2}), at::ones({7})); },
                            {"rank 1 of 3: all_gather: full has 7"});
  expect_throws<CheckError>([&] { comm.send(at::ones({2}), 3, 0); }, {"there is no peer 3"});
  expect_throws<CheckError>([&] { comm.split(0, 0); }, {"split_by()"});
  EXPECT_THROW(SimulatedCommunicator(3, 3), CheckError);
  EXPECT_EQ(comm.traffic(), Traffic());
}

TEST(SimulatedCommunicator, BelongsToAMesh) {
  SimulatedCommunicator comm(/*rank=*/7, /*size=*/12);
  const Mesh mesh = Mesh::split(comm, /*num_stages=*/4);
  EXPECT_EQ(mesh.num_stages(), 4);
  EXPECT_EQ(mesh.pp_rank(), 2);
  EXPECT_EQ(mesh.num_replicas(), 3);
  EXPECT_EQ(mesh.dp_rank(), 1);
  EXPECT_EQ(comm.split_by([](int rank) { return rank == 7 ? -1 : 0; }), nullptr);
  mesh.stages.all_reduce(at::ones({8}))->wait();
  EXPECT_EQ(comm.traffic(), all_reduce_traffic(8, 4, 4, 2)) << "the groups share a meter";
}

// The link is so slow that computing takes no time beside it: 1.032 s for a round of one float.
TEST(SimulatedCommunicator, OperationsQueueOnTheLink) {
  SimulatedCommunicator comm(/*rank=*/3, /*size=*/4, Link{.latency_us = 1e6, .gbit_per_s = 1e-6});
  const auto expect_waited = [&](double seconds) {
    EXPECT_NEAR(*comm.simulated_wait_s(), seconds, 0.5);
  };
  const WorkPtr first = comm.all_reduce(at::ones({4}));
  const WorkPtr second = comm.split_by([](int) { return 0; })->all_reduce(at::ones({4}));
  EXPECT_FALSE(first->test());
  first->wait();
  expect_waited(2.19);  // two rounds of three floats
  EXPECT_TRUE(first->test());
  second->wait();
  expect_waited(4.38);
  const WorkPtr message = comm.recv(at::ones({1}), 2, 0);  // over the other rank's link
  const WorkPtr scalar = comm.all_reduce(at::ones({20}));
  message->wait();
  expect_waited(5.42);
  scalar->wait();
  expect_waited(7.34);  // since 4.38: two rounds of 15 floats
}

// Of 64 ranks on eight machines, a rank sends to seven others, and what it sends there is a sum over
// its own machine.
TEST(SimulatedCommunicator, MachinesHaveALinkBetweenThem) {
  const Links links(Link{.latency_us = 1e3, .gbit_per_s = 100},
                    Link{.latency_us = 1e6, .gbit_per_s = 100});
  SimulatedCommunicator comm(/*rank=*/9, /*size=*/64, links, machines_of(64, 8));
  comm.all_reduce(at::ones({640}))->wait();
  EXPECT_NEAR(*comm.simulated_wait_s(), 2.002, 0.2);
  EXPECT_EQ(comm.traffic()[CommOp::kAllReduce].outer_bytes, 2 * 7 * 10 * 4);
  const auto machine = comm.split_by([](int rank) { return rank / 8; });
  machine->all_reduce(at::ones({640}))->wait();
  EXPECT_NEAR(*comm.simulated_wait_s(), 2.004, 0.2);
  comm.send(at::ones({1}), 8, 0)->wait();
  EXPECT_NEAR(*comm.simulated_wait_s(), 2.005, 0.2);
  comm.recv(at::ones({1}), 7, 0)->wait();
  EXPECT_NEAR(*comm.simulated_wait_s(), 3.005, 0.2);
}

}  // namespace
}  // namespace ladder
