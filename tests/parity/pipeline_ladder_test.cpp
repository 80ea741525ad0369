// The pipeline's rung of the parity ladder: on as many ranks as this program has, every schedule
// equals the oracle, and step 4 on as many replicas, to the bit; what each stage holds and sends is
// what theory says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/comm/mpi/mpi_communicator.hpp"
#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/testing/mpi_world.hpp"
#include "common/train/checkpoint/checkpoint.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"
#include "step8_pipeline_ga/schedule/schedule_simulation.hpp"
#include "tests/parity/climber.hpp"

namespace ladder {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A shape of the pipeline and of its batches.
struct Shape {
  Schedule schedule = Schedule::k1f1b;
  int num_stages = 2;
  std::int64_t num_microbatches = 2;  // per flush
  int chunks_per_stage = 1;
  std::int64_t accumulation = 1;
  std::int64_t layers = 0;  // 0: one block per chunk

  std::string name() const {
    return concat(to_string(schedule), ", ", num_stages, " stages of ", chunks_per_stage, " with ",
                  layers, " blocks, ", num_microbatches, " microbatches, ", accumulation,
                  " flush(es)");
  }
};

TrainOptions with_shape(TrainOptions options, const Shape& shape) {
  options.set<PipelineOptions>() = {.num_stages = shape.num_stages,
                                    .schedule = shape.schedule,
                                    .chunks_per_stage = shape.chunks_per_stage,
                                    .accumulation = shape.accumulation};
  options.data.num_microbatches = shape.num_microbatches;
  options.model.layers =
      shape.layers > 0 ? shape.layers : shape.num_stages * shape.chunks_per_stage;
  return options;
}

// As many microbatches per step, for a trainer without flushes.
TrainOptions without_flushes(TrainOptions options) {
  options.data.num_microbatches *= std::exchange(options.set<PipelineOptions>().accumulation, 1);
  return options;
}

constexpr Schedule kSchedules[] = {Schedule::kGpipe, Schedule::k1f1b, Schedule::kZeroBubble,
                                   Schedule::kInterleaved};

// On every number of stages that divides the ranks (a single one on up to two ranks), microbatches
// that the stages do not divide, uneven cuts and two flushes; on as many stages as ranks also one
// flush that they do divide. Enough blocks for any schedule.
std::vector<Shape> shapes_on(int num_ranks) {
  std::vector<Shape> shapes = {
      {.num_stages = num_ranks, .num_microbatches = 2 * num_ranks, .layers = 2 * num_ranks}};
  for (int num_stages = num_ranks > 2 ? 2 : 1; num_stages <= num_ranks; ++num_stages) {
    if (num_ranks % num_stages == 0)
      shapes.push_back({.num_stages = num_stages,
                        .num_microbatches = num_stages + 1,
                        .accumulation = 2,
                        .layers = 2 * num_stages + 1});
  }
  return shapes;
}

// The same shape by every schedule that it can have.
std::vector<Shape> every_schedule(Shape shape) {
  std::vector<Shape> shapes;
  for (const Schedule schedule : kSchedules) {
    const bool is_interleaved = schedule == Schedule::kInterleaved;
    if (is_interleaved && shape.num_stages == 1) continue;  // RefusesShapesThatCannotBe
    shape.schedule = schedule;
    shape.chunks_per_stage = is_interleaved ? 2 : 1;
    shapes.push_back(shape);
  }
  return shapes;
}

// Configurations of the ladder, in turn: clipping on and off, AdamW and SGD, windows and ragged
// documents, small and large buckets, odd and even widths.
std::vector<Configuration> untied() {
  std::vector<Configuration> all = covering_set();
  std::erase_if(all, [](const Configuration& each) { return each.tie_embeddings; });
  return all;
}
std::vector<Configuration> tied_in_fp32() {
  std::vector<Configuration> all = covering_set();
  std::erase_if(all,
                [](const Configuration& each) { return !each.tie_embeddings || each.is_bf16; });
  return all;
}

TEST(PipelineLadder, EveryScheduleEqualsTheOracleAndStep4) {
  Climber climber;
  const std::vector<Configuration> configurations = untied();
  std::size_t next = 0;
  for (const Shape& any : shapes_on(climber.size())) {
    const Configuration& configuration = configurations[next++ % configurations.size()];
    TrainOptions options = with_shape(climber.options(configuration), any);
    options.num_steps = 8;
    const int num_replicas = climber.size() / any.num_stages;
    const FinishedRun step4 =
        climber.climb_on(num_replicas, rung_of("step4_bucketed_ddp"), without_flushes(options));
    FinishedRun oracle;
    if (climber.rank() == 0)
      oracle = climber.ask_oracle(without_flushes(options), Fold::kMicrobatchesFirst, num_replicas);
    for (const Shape& shape : every_schedule(any)) {
      SCOPED_TRACE(concat(climber.size(), " ranks, ", configuration.name(), ", ", shape.name()));
      const FinishedRun run = climber.climb(pipeline(), with_shape(options, shape));
      EXPECT_EQ(run.report.losses.size(), 8u);
      EXPECT_EQ(run.report.num_replicas, num_replicas);
      EXPECT_EQ(run.report.num_stages, shape.num_stages);
      if (climber.rank() != 0) continue;
      EXPECT_THAT(differences(run, oracle), IsEmpty());
      EXPECT_THAT(differences(run, step4), IsEmpty());
    }
  }
}

// Autograd adds up both parts of a tied embedding's gradient for every microbatch; two stages each
// add up their own part over all microbatches, and then the two. That is another order of the same
// sum, so it is equal up to rounding; with all parts on one stage, to the bit.
TEST(PipelineLadder, ATiedEmbeddingIsEqualUpToTheOrderOfItsSum) {
  Climber climber;
  const std::vector<Configuration> configurations = tied_in_fp32();
  std::size_t next = 0;
  for (const Shape& any : shapes_on(climber.size())) {
    const Configuration& configuration = configurations[next++ % configurations.size()];
    TrainOptions options = with_shape(climber.options(configuration), any);
    options.num_steps = 3;
    FinishedRun oracle;
    if (climber.rank() == 0)
      oracle = climber.ask_oracle(without_flushes(options), Fold::kMicrobatchesFirst,
                                  climber.size() / any.num_stages);
    for (const Shape& shape : every_schedule(any)) {
      SCOPED_TRACE(concat(climber.size(), " ranks, ", configuration.name(), ", ", shape.name()));
      const FinishedRun run = climber.climb(pipeline(), with_shape(options, shape));
      if (climber.rank() != 0) continue;
      if (any.num_stages == 1) {
        EXPECT_THAT(differences(run, oracle), IsEmpty());
      }
      for (std::size_t i = 0; i < run.report.losses.size(); ++i) {
        EXPECT_NEAR(run.report.losses[i] / oracle.report.losses[i], 1, 2e-6) << i;
        EXPECT_NEAR(run.report.grad_norms[i] / oracle.report.grad_norms[i], 1, 1e-5) << i;
        EXPECT_NEAR(run.report.param_norms[i] / oracle.report.param_norms[i], 1, 1e-6) << i;
      }
    }
  }
}

// fp16 with a loss scale that is far too large at first: gradients overflow on one stage or
// another, and every stage skips those steps. Also stochastic rounding instead of masters, of a
// tied embedding too: its two copies stay equal because they draw the same random numbers.
TEST(PipelineLadder, StagesSkipAndRoundAlike) {
  Climber climber;
  TrainOptions options =
      with_shape(climber.options(untied()[2]), {Schedule::k1f1b, climber.size(), 4});
  options.model.precision.params = at::kHalf;
  options.loss_scale = {.initial = 1 << 22, .window = 2};
  FinishedRun run = climber.climb(pipeline(), options);
  if (climber.rank() == 0) {
    const FinishedRun oracle =
        climber.ask_oracle(without_flushes(options), Fold::kMicrobatchesFirst, 1);
    EXPECT_THAT(differences(run, oracle), IsEmpty());
    EXPECT_EQ(run.report.skipped_steps, oracle.report.skipped_steps);
    EXPECT_GE(run.report.skipped_steps, 2);
  }
  climber.wait_for_all();
  options.model.precision.params = at::kBFloat16;
  options.optimizer.masters = Masters::kStochastic;
  for (const bool is_tied : {false, true}) {
    options.model.tie_embeddings = is_tied;
    run = climber.climb(pipeline(), options);
    if (climber.rank() == 0) {
      const FinishedRun oracle =
          climber.ask_oracle(without_flushes(options), Fold::kMicrobatchesFirst, 1);
      if (!is_tied) {
        EXPECT_THAT(differences(run, oracle), IsEmpty());
      }
      EXPECT_NEAR(run.report.losses.back() / oracle.report.losses.back(), 1, 1e-3);
    }
    climber.wait_for_all();
  }
}

// Sends that complete only when they are received, and activations that no MPI sends eagerly.
TEST(PipelineLadder, NeedsNoBufferInTheTransport) {
  Climber climber;
  World world(mpi_communicator({.synchronous_sends = true}), Transport::kMpi);
  TrainOptions options =
      with_shape(climber.options(untied()[2]), {Schedule::k1f1b, climber.size(), 5});
  options.num_steps = 2;
  options.output.eval_every = 0;
  options.model.channels = 64;
  options.data.microbatch_size = 4;  // 24 KiB
  for (const Schedule schedule : {Schedule::kGpipe, Schedule::k1f1b, Schedule::kZeroBubble}) {
    options.set<PipelineOptions>().schedule = schedule;
    const FinishedRun run = climber.climb(pipeline(), options, world);
    if (climber.rank() != 0) continue;
    const FinishedRun oracle =
        climber.ask_oracle(without_flushes(options), Fold::kMicrobatchesFirst, 1);
    EXPECT_THAT(differences(run, oracle), IsEmpty()) << to_string(schedule);
  }
}

// One more live microbatch costs what its forward saves, to the byte, and 1F1B saves as many of
// these as the formula says. A later stage may also hold two messages when it holds the most: the
// next activation, which has arrived already, and the last gradient, which has not left yet.
TEST(PipelineLadder, HoldsAsManyActivationsAsTheFormulaSays) {
  Climber climber;
  const int p = climber.size();
  TrainOptions options = climber.options(untied()[2]);
  options.num_steps = 2;
  options.output.eval_every = 0;
  const auto peak = [&](Schedule schedule, std::int64_t num_microbatches) {
    const FinishedRun run =
        climber.climb(pipeline(), with_shape(options, {schedule, p, num_microbatches}));
    const std::int64_t token_ids =  // of the whole step, and targets
        16 * num_microbatches * options.data.microbatch_size * options.model.context;
    return run.report.memory.peak(MemoryCategory::kActivations) - token_ids;
  };
  const std::int64_t per_microbatch = peak(Schedule::kGpipe, 9) - peak(Schedule::kGpipe, 8);
  const auto live = [&](Schedule schedule) {
    return most_live_microbatches(schedule, p, 8, 1, climber.rank());
  };
  EXPECT_EQ(live(Schedule::kGpipe), 8);
  EXPECT_EQ(live(Schedule::k1f1b), p - climber.rank());
  const std::int64_t fewer = live(Schedule::kGpipe) - live(Schedule::k1f1b);
  const std::int64_t saved = peak(Schedule::kGpipe, 8) - peak(Schedule::k1f1b, 8);
  const std::int64_t message =
      4 * options.data.microbatch_size * options.model.context * options.model.channels;
  EXPECT_GT(per_microbatch, 8 * message);
  EXPECT_LE(saved, fewer * per_microbatch);
  EXPECT_GE(saved, fewer * per_microbatch - (climber.rank() > 0 ? 2 * message : 0));
}

// One run continued by step 8 and others in turn, on different numbers of stages and replicas.
TEST(PipelineLadder, ACheckpointWalksThroughPipelines) {
  Climber climber;
  if (climber.size() != 4) return;  // only in the test on four ranks
  struct Leg {
    std::string step;
    int num_ranks;
    int num_stages;
    std::int64_t end;
  };
  const std::vector<Leg> legs = {{"step0_single_gpu", 1, 1, 3},
                                 {"step8_pipeline_ga", 4, 2, 6},
                                 {"step7_zero3", 4, 1, 8},
                                 {"step8_pipeline_ga", 3, 3, 10},
                                 {"step0_single_gpu", 1, 1, 12}};
  Configuration configuration = untied()[1];
  configuration.num_microbatches = 3;
  std::string checkpoint = "none";
  for (const Leg& leg : legs) {
    TrainOptions options = climber.options(configuration);
    options.model.layers = 3;
    options.num_steps = leg.end;
    options.output.resume = checkpoint;
    options.set<PipelineOptions>().num_stages = leg.num_stages;
    const Rung& rung = rung_of(leg.step);
    const FinishedRun run = climber.climb_on(leg.num_ranks, rung, options);
    if (climber.rank() == 0) {
      SCOPED_TRACE(concat(leg.step, " on ", leg.num_ranks, " ranks goes on from ", checkpoint));
      const FinishedRun wanted =
          climber.ask_oracle(options, rung.fold, leg.num_ranks / leg.num_stages);
      EXPECT_EQ(run.report.first_step, wanted.report.first_step);
      EXPECT_THAT(differences(run, wanted), IsEmpty());
    }
    checkpoint = run.folder;
    climber.wait_for_all();
  }
}

// The text that the model writes at the end, for which every token goes through the whole pipeline.
TEST(PipelineLadder, WritesTheTextOfTheOracle) {
  Climber climber;
  TrainOptions options =
      with_shape(climber.options(untied()[2]), {Schedule::k1f1b, climber.size(), 4});
  options.num_steps = 4;
  options.output.sample = "line ";
  const FinishedRun run = climber.climb(pipeline(), options);
  if (climber.rank() == 0) {
    const FinishedRun wanted =
        climber.ask_oracle(without_flushes(options), Fold::kMicrobatchesFirst, 1);
    EXPECT_EQ(run.report.sample, wanted.report.sample);
    EXPECT_FALSE(run.report.sample.empty());
  }
}

TEST(PipelineLadder, RefusesShapesThatCannotBe) {
  Climber climber;
  const auto message = [&](const Shape& shape) -> std::string {
    try {
      climber.climb(pipeline(), with_shape(climber.options(untied()[2]), shape));
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  };
  const int p = climber.size();
  EXPECT_THAT(message({Schedule::k1f1b, p + 1, 8}), HasSubstr("--pipeline-stages"));
  EXPECT_THAT(message({Schedule::kInterleaved, 1, 8, 2}), HasSubstr("nothing to interleave"));
  if (p == 1) return;
  EXPECT_THAT(message({Schedule::k1f1b, p, p - 1}), HasSubstr("at least as many microbatches"));
  EXPECT_THAT(message({Schedule::k1f1b, p, p, 1, 1, p - 1}),
              HasSubstr(concat("--layers ", p - 1, " is too few for --pipeline-stages ", p)));
}

}  // namespace
}  // namespace ladder
