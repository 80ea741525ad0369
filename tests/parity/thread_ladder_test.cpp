// The parity ladder on threads: ranks that are threads of this process train to the same bits as
// one process that simulates them. This needs neither MPI nor several processes, so it also runs
// under the thread sanitizer. That MPI computes the same: threads_test.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/comm/threads/run_as_threads.hpp"
#include "common/core/check.hpp"
#include "step0_single_gpu/judge/comparison.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"
#include "step8_pipeline_ga/schedule/pipeline_schedule.hpp"
#include "step9_diloco/diloco_options.hpp"
#include "tests/parity/configurations.hpp"
#include "tests/parity/rungs.hpp"
#include "tests/parity/straight_line_diloco.hpp"

namespace ladder {
namespace {

using ::testing::IsEmpty;

class ThreadLadder : public ::testing::TestWithParam<int> {
 protected:
  ThreadLadder() { at::set_num_threads(1); }  // of the thread that plays the oracle
  static int num_ranks() { return GetParam(); }
  std::string fresh_folder() { return folder_.path(concat("run ", num_runs_++)); }

  // Every rank's account must be the same as rank 0's, which is returned, and every rank must send
  // what theory says.
  FinishedRun train_on_threads(const Rung& rung, TrainOptions options) {
    options = options_for(rung.trainer, options);
    options.output.out = fresh_folder();
    const int num_stages = rung.trainer.num_stages(options, num_ranks());
    std::vector<TrainReport> reports(static_cast<std::size_t>(num_ranks()));
    run_as_threads(num_ranks(), [&](Communicator& comm) {
      World world(comm.split(0, 0), Transport::kThreads);
      TrainOptions own = options;
      if (rung.starts_by_broadcast) {  // replicas start apart: it is the broadcast that counts
        own.seed += static_cast<std::uint64_t>(comm.rank() / num_stages);
      }
      reports[static_cast<std::size_t>(comm.rank())] = rung.trainer.train(own, world);
    });
    for (int rank = 0; rank < num_ranks(); ++rank) {
      const TrainReport& report = reports[static_cast<std::size_t>(rank)];
      SCOPED_TRACE(concat("rank ", rank));
      EXPECT_EQ(report.losses, reports[0].losses);
      EXPECT_EQ(report.grad_norms, reports[0].grad_norms);
      EXPECT_EQ(report.param_norms, reports[0].param_norms);
      EXPECT_EQ(report.traffic, rung.trainer.traffic(options, steps_of(report), num_ranks(), rank));
    }
    return {concat(rung.step(), " on threads"), reports[0], options.output.out};
  }

  FinishedRun ask_oracle(const TrainOptions& options, int num_replicas) {
    return ladder::ask_oracle(options, num_replicas, fresh_folder());
  }

  TempFolder folder_;
  const Texts texts_{folder_};
  int num_runs_ = 0;
};

// Several microbatches, a tied head, documents and small buckets; one microbatch, an untied head
// and windows; conversations, in some steps without any target. An epoch ends within the steps.
TEST_P(ThreadLadder, EveryStepEqualsTheOracle) {
  for (const std::size_t i : {1, 8, 10}) {
    const Configuration configuration = covering_set()[i];
    std::map<SumMode, FinishedRun> answers;
    for (const Rung& rung : rungs()) {
      SCOPED_TRACE(concat(rung.step(), ", ", configuration.name()));
      const TrainOptions options = rung.comparable(options_of(configuration, texts_));
      const auto [wanted, is_new] = answers.try_emplace(options.gradient_sum);
      if (is_new) wanted->second = ask_oracle(options, num_ranks());
      const FinishedRun run = train_on_threads(rung, options);
      EXPECT_EQ(run.report.losses.size(), 12u);
      EXPECT_THAT(differences(run, wanted->second), IsEmpty());
    }
  }
}

// One stage on each thread.
TEST_P(ThreadLadder, EveryScheduleOfThePipelineEqualsTheOracle) {
  TrainOptions options = options_of(covering_set()[4], texts_);
  options.num_steps = 6;
  for (const Schedule schedule :
       {Schedule::kGpipe, Schedule::k1f1b, Schedule::kInterleaved, Schedule::kZeroBubble}) {
    SCOPED_TRACE(to_string(schedule));
    const int chunks = schedule == Schedule::kInterleaved ? 2 : 1;
    options.set<PipelineOptions>() = {
        .num_stages = num_ranks(), .schedule = schedule, .chunks_per_stage = chunks};
    options.data.num_microbatches = num_ranks() + 1;
    options.model.layers = num_ranks() * chunks;
    const FinishedRun run = train_on_threads(pipeline(), options);
    EXPECT_EQ(run.report.losses.size(), 6u);
    EXPECT_THAT(differences(run, ask_oracle(options, 1)), IsEmpty());
  }
}

// Workers that meet now and then, with an average in flight, in fp32 and in fewer bytes.
TEST_P(ThreadLadder, DilocoEqualsItsDefinition) {
  TrainOptions options = options_of(covering_set()[4], texts_);
  options.set<DilocoOptions>() = {
      .sync_every = 6, .num_fragments = 3, .sync_delay = 1, .alpha = 0.25};
  const FinishedRun run = train_on_threads(diloco(), options);
  const StraightLine wanted = straight_line_diloco(options, num_ranks());
  EXPECT_EQ(run.report.losses, wanted.losses);
  EXPECT_EQ(run.report.param_hash, wanted.global_hashes.back());
  options.set<DilocoOptions>().wire = WireFormat::kInt8;
  EXPECT_NE(train_on_threads(diloco(), options).report.param_hash, run.report.param_hash);
}

// What a step saves on threads, another continues on threads, as the oracle does.
TEST_P(ThreadLadder, ACheckpointGoesOn) {
  TrainOptions options = options_of(covering_set()[8], texts_);
  options.num_steps = 4;
  const FinishedRun begun = train_on_threads(rung_of("step7_zero3"), options);
  options.num_steps = 8;
  options.output.resume = begun.folder;
  for (const char* step : {"step5_zero1", "step7_zero3"}) {
    const FinishedRun rest = train_on_threads(rung_of(step), options);
    EXPECT_EQ(rest.report.first_step, 4);
    EXPECT_THAT(differences(rest, ask_oracle(options, num_ranks())), IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadLadder, ::testing::Values(2, 3));

}  // namespace
}  // namespace ladder
