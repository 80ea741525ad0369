// A simulated rank (--transport simulated) runs the trainers' own code. It must hold, send and wait
// for what theory says, on any number of ranks, and send what the same rank sends to real ones.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cmake/trainers.hpp"
#include "common/comm/messages/message_communicator.hpp"
#include "common/comm/simulated/simulated_communicator.hpp"
#include "common/comm/threads/run_as_threads.hpp"
#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/differences.hpp"
#include "common/train/start.hpp"
#include "step0_single_gpu/judge/comparison.hpp"
#include "step4_bucketed_ddp/bucket_options.hpp"
#include "step5_zero1/shard_options.hpp"
#include "step8_pipeline_ga/train.hpp"
#include "step9_diloco/train.hpp"

namespace ladder {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;

struct Case {
  Trainer trainer;
  WireFormat wire = WireFormat::kFp32;
  Schedule schedule = Schedule::k1f1b;
  int shard_ranks = 0;
};

class SimulatedWorld : public ::testing::TestWithParam<Case> {
 protected:
  SimulatedWorld() {
    install_memory_ledger();
    at::set_num_threads(1);
  }

  static const Trainer& trainer() { return GetParam().trainer; }

  // Replicas of as many stages as there are ranks, but at most 4.
  TrainOptions options_on(int num_ranks) const {
    const int stages = std::min(num_ranks, 4);
    const int chunks = GetParam().schedule == Schedule::kInterleaved ? 2 : 1;
    TrainOptions options;
    options.num_steps = 2;
    options.model = {.context = 8, .layers = stages * chunks, .heads = 2, .channels = 12};
    options.data.source = text_;
    options.data.microbatch_size = 2;
    options.data.num_microbatches = 4;
    options.set<BucketOptions>().capacity_mb = 8.0 / 1024;
    options.set<PipelineOptions>() = {
        .num_stages = stages, .schedule = GetParam().schedule, .chunks_per_stage = chunks};
    options.set<ShardOptions>().num_ranks = GetParam().shard_ranks;
    options.set<DilocoOptions>() = {.sync_every = 2, .num_fragments = 2, .wire = GetParam().wire};
    options.output.is_quiet = true;
    return options_for(trainer(), options);
  }

  TrainReport simulate(int rank, int num_ranks, const Links& links = {},
                       const Machines& machines = {}) const {
    TrainOptions options = options_on(num_ranks);
    options.transport = Transport::kSimulated;
    options.num_ranks = num_ranks;
    options.simulated_rank = rank;
    finalize(options);
    SimulatedCommunicator comm(rank, num_ranks, links, machines);
    const MemoryReading before = read_memory();
    const TrainReport report = trainer().train(options, comm);
    EXPECT_THAT(
        differences_from_theory(trainer(), options, report, before, num_ranks, rank, machines),
        IsEmpty());
    return report;
  }

  TempFolder folder_;
  const std::string text_ = folder_.write("text.txt", std::string(1 << 17, 'x'));
};

TEST_P(SimulatedWorld, HoldsAndSendsWhatTheorySays) {
  for (const auto& [rank, num_ranks] : {std::pair{33, 64}, {0, 1024}, {513, 1024}, {1023, 1024}}) {
    SCOPED_TRACE(concat("rank ", rank, " of ", num_ranks));
    const TrainReport report = simulate(rank, num_ranks);
    EXPECT_EQ(report.losses.size(), 2u);
    EXPECT_GT(report.traffic.bytes_sent(), 0);
    EXPECT_THAT(report.simulated_waits_s, Each(0)) << "a link that is off";
  }
}

TEST_P(SimulatedWorld, SendsWhatTheSameRankSendsToRealOnes) {
  for (const auto& [num_ranks, per_machine] : {std::pair{2, 0}, {4, 0}, {4, 2}, {4, 1}}) {
    const Machines machines = machines_of(num_ranks, per_machine);
    std::vector<TrainReport> real(static_cast<std::size_t>(num_ranks));
    run_as_threads(num_ranks, [&, num_ranks = num_ranks](Communicator& comm) {
      place_on(machines, comm);
      real[static_cast<std::size_t>(comm.rank())] = trainer().train(options_on(num_ranks), comm);
    });
    for (int rank = 0; rank < num_ranks; ++rank) {
      SCOPED_TRACE(concat("rank ", rank, " of ", num_ranks, ", ", per_machine, " on a machine"));
      EXPECT_EQ(simulate(rank, num_ranks, {}, machines).traffic,
                real[static_cast<std::size_t>(rank)].traffic);
    }
  }
}

// A link that needs a minute for each message, on which a real run would take hours.
TEST_P(SimulatedWorld, WaitsWithoutSleeping) {
  const TrainReport report = simulate(1, 64, Link{.latency_us = 60e6, .gbit_per_s = 1000});
  const double waited_s = report.simulated_waits_s.at(1);
  EXPECT_GT(waited_s, 60);
  EXPECT_LT(report.step_seconds.at(1) - waited_s, 20) << "what it computes takes real time";
}

// Four stages and four microbatches: (4 - 1) / 4.
TEST(Bubble, IsThatOfTheSchedule) {
  TrainOptions options = options_for(step8::trainer(), step8::default_options());
  options.set<PipelineOptions>().num_stages = 4;
  EXPECT_DOUBLE_EQ(step8::trainer().bubble(options, 1024), 0.75);
  options.set<PipelineOptions>().num_stages = 1;
  EXPECT_DOUBLE_EQ(step8::trainer().bubble(options, 1024), 0);
}

std::string name_of(const Case& of) {
  std::string name = of.trainer.step;
  if (of.wire == WireFormat::kInt8) name += "_int8";
  if (of.schedule == Schedule::kInterleaved) name += "_interleaved";
  if (of.schedule == Schedule::kZeroBubble) name += "_zero_bubble";
  if (of.shard_ranks > 0) name += "_copies";
  return name;
}

// All steps on ranks.
std::vector<Case> cases() {
  std::vector<Case> all = {{step8::trainer(), {}, Schedule::kInterleaved},
                           {step8::trainer(), {}, Schedule::kZeroBubble},
                           {step9::trainer(), WireFormat::kInt8}};
  for (const Trainer& trainer : trainers()) {
    if (trainer.role != RankRole::kAlone) all.push_back({trainer});
    if (trainer.options.own.find<ShardOptions>() != nullptr)
      all.push_back({.trainer = trainer, .shard_ranks = 2});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Steps, SimulatedWorld, ::testing::ValuesIn(cases()),
                         [](const auto& each) { return name_of(each.param); });

}  // namespace
}  // namespace ladder
