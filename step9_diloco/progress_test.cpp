// An average makes progress while the worker trains, also over a transport that has to be polled.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "common/comm/traffic_theory.hpp"
#include "common/core/timer.hpp"
#include "common/testing/lazy_communicator.hpp"
#include "common/testing/rank_test.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/start.hpp"
#include "step9_diloco/compressed_averager.hpp"
#include "step9_diloco/diloco_options.hpp"
#include "step9_diloco/train.hpp"

namespace ladder {
namespace {

class DilocoProgress : public RankTest {
 protected:
  // Four rounds of 4 inner steps.
  TrainOptions tiny_run(std::int64_t sync_delay) const {
    TrainOptions options;
    options.data.source = text_;
    options.step = "step9_diloco";
    options.num_steps = 16;
    options.model = {.context = 16, .layers = 1, .heads = 2, .channels = 20};
    options.data.microbatch_size = 1;
    options.data.num_microbatches = 1;
    options.set<DilocoOptions>() = {.sync_every = 4, .sync_delay = sync_delay};
    options.output.is_quiet = true;
    finalize(options);
    return options;
  }

  // Of the averages of a run whose transport wants ten polls for each of them.
  double share_hidden(std::int64_t sync_delay) const {
    // The averages are larger, the round's records are not.
    constexpr std::size_t kEagerBytes = 4096;
    auto lazy = std::make_unique<LazyCommunicator>(comm_, /*num_tests=*/10, kEagerBytes);
    const LazyCommunicator& transport = *lazy;
    World world(std::move(lazy), test_world().transport());
    step9::train(tiny_run(sync_delay), world);
    EXPECT_EQ(transport.num_started(), 4);
    return 1 - static_cast<double>(transport.num_waited_for()) / 4;
  }

 private:
  TempFolder folder_;
  const std::string text_ = folder_.write("text.txt", std::string(4000, 'a'));
};

TEST_ON_RANKS(DilocoProgress, ADelayHidesTheAverageIfTheTransportMustBePolled) {
  EXPECT_EQ(share_hidden(/*sync_delay=*/0), 0);
  EXPECT_EQ(share_hidden(1), 1);
  EXPECT_EQ(share_hidden(2), 1);
}

// Polls until this rank has sent `bytes` through `comm`, or gives up.
void poll_until_sent(Averager& averager, Communicator& comm, std::int64_t bytes) {
  const Timer timer;
  while (comm.traffic().bytes_sent() < bytes && timer.seconds() < 20) averager.poll();
}

// Both halves of an average leave before anybody calls finish(). The messages are far above MPI's
// eager limit. (For threads the all-reduce is one step, and only the compressed average has two
// halves.)
TEST_ON_RANKS(DilocoProgress, PollsMoveBothHalvesOfAnAverage) {
  constexpr std::int64_t kNumel = 1 << 20;
  World world = synchronous_world();
  Communicator& comm = world.comm();
  const auto expect_sent_by_polls = [&](Averager& averager, const Traffic& wanted) {
    const at::Tensor values = at::full({kNumel}, rank_ + 1.0F);
    const std::int64_t before = comm.traffic().bytes_sent();
    averager.poll();  // nothing is in flight
    averager.start(values);
    poll_until_sent(averager, comm, before + wanted.bytes_sent());
    EXPECT_EQ(comm.traffic().bytes_sent() - before, wanted.bytes_sent());
    averager.finish();
    EXPECT_TRUE(values.eq((size_ + 1) / 2.0F).all().item<bool>());
  };
  GroupAverager group(comm);
  expect_sent_by_polls(group, all_reduce_traffic(kNumel, 4, size_, rank_));
  CompressedAverager compressed(comm, WireFormat::kBf16);
  expect_sent_by_polls(compressed,
                       compressed_average_traffic(kNumel, WireFormat::kBf16, size_, rank_));
}

// Workers come to the second half at different times, and use the group for other things meanwhile.
TEST_ON_RANKS(DilocoProgress, WorkersPollAtTimesOfTheirOwn) {
  for (int round = 0; round < 8; ++round) {
    CompressedAverager averager(comm_, WireFormat::kFp32);
    const at::Tensor values = at::full({1027}, rank_ + 1.0F);
    averager.start(values);
    comm_.barrier();
    for (int i = 0; i < (rank_ + round) % 4; ++i) averager.poll();
    EXPECT_EQ(all_reduce_sum(1, comm_), size_);
    averager.poll();
    averager.finish();
    EXPECT_TRUE(values.eq((size_ + 1) / 2.0F).all().item<bool>());
  }
}

}  // namespace
}  // namespace ladder
