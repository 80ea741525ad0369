// The pipeline's rung of the parity ladder: on as many ranks as this program has, every schedule
// equals the oracle to the bit; what each stage holds and sends is what theory says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/testing/rank_test.hpp"
#include "common/testing/stream_order.hpp"
#include "step8_pipeline_ga/pipeline_options.hpp"
#include "step8_pipeline_ga/schedule/schedule_simulation.hpp"
#include "tests/parity/climber.hpp"

namespace ladder {
namespace {

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

constexpr Schedule kSchedules[] = {Schedule::kGpipe, Schedule::k1f1b, Schedule::kZeroBubble,
                                   Schedule::kInterleaved};

// Shapes for every number of stages that divides the ranks (a single one on up to two ranks),
// microbatches that the stages do not divide, uneven cuts and two flushes; with as many stages as
// ranks also one flush that they do divide. Enough blocks for any schedule.
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

// The shape with every schedule that it can have.
std::vector<Shape> every_schedule(Shape shape) {
  std::vector<Shape> shapes;
  for (const Schedule schedule : kSchedules) {
    const bool is_interleaved = schedule == Schedule::kInterleaved;
    if (is_interleaved && shape.num_stages == 1) continue;  // nothing to interleave
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

class PipelineLadder {};

// Every schedule on every shape, with these configurations in turn; and the text that the model
// writes at the end, for which every token goes through the whole pipeline.
TEST_ON_RANKS(PipelineLadder, EveryScheduleEqualsTheOracle) {
  Climber climber;
  const std::vector<Configuration> configurations = untied();
  std::size_t next = 0;
  for (const Shape& any : shapes_on(climber.size())) {
    const Configuration& configuration = configurations[next++ % configurations.size()];
    TrainOptions options = with_shape(climber.options(configuration), any);
    options.num_steps = 8;
    if (any.accumulation == 1) options.output.sample = "line ";
    const int num_replicas = climber.size() / any.num_stages;
    TrainOptions in_one = options;  // a trainer without flushes takes their microbatches in a row
    in_one.data.num_microbatches *= std::exchange(in_one.set<PipelineOptions>().accumulation, 1);
    FinishedRun oracle;
    if (climber.rank() == 0) oracle = climber.ask_oracle(in_one, num_replicas);
    for (const Shape& shape : every_schedule(any)) {
      SCOPED_TRACE(concat(climber.size(), " ranks, ", configuration.name(), ", ", shape.name()));
      const FinishedRun run = climber.climb(pipeline(), with_shape(options, shape));
      EXPECT_EQ(run.report.losses.size(), 8u);
      EXPECT_EQ(run.report.num_replicas, num_replicas);
      EXPECT_EQ(run.report.num_stages, shape.num_stages);
      if (climber.rank() != 0) continue;
      EXPECT_THAT(differences(run, oracle), IsEmpty());
      EXPECT_EQ(run.report.sample, oracle.report.sample);
      EXPECT_EQ(run.report.sample.empty(), options.output.sample.empty());
    }
  }
}

// Autograd adds up both parts of a tied embedding's gradient for every microbatch; two stages each
// add up their own part over all microbatches, and then the two. That is another order of the same
// sum, so it is equal up to rounding; with exact sums, to the bit. Stochastic rounding keeps the
// copies equal, too: they draw the same random numbers.
TEST(PipelineLadder, ATiedEmbeddingIsEqualUpToTheOrderOfItsSum) {
  Climber climber;
  TrainOptions options =
      with_shape(climber.options(covering_set()[1]), {Schedule::k1f1b, climber.size(), 5});
  options.num_steps = 3;
  const FinishedRun run = climber.climb(pipeline(), options);
  if (climber.rank() == 0) expect_close(run, climber.ask_oracle(options, 1));
  options.gradient_sum = SumMode::kExact;
  options.model.precision.params = NumberFormat::kBf16;
  options.optimizer.masters = Masters::kStochastic;
  climber.expect_oracle(climber.climb(pipeline(), options), options, 1);
}

// As over NCCL: sends complete only when they are received, the messages of a rank wait for one
// another in the order of its calls, and so do its sums.
TEST(PipelineLadder, NeedsNoBufferInTheTransport) {
  Climber climber;
  World world = synchronous_world();
  StreamOrder streams(world.comm());
  for (int num_stages = 2; num_stages <= climber.size(); ++num_stages) {
    if (climber.size() % num_stages != 0) continue;
    for (const Shape& shape :
         every_schedule({.num_stages = num_stages, .num_microbatches = num_stages + 1})) {
      SCOPED_TRACE(shape.name());
      TrainOptions options = with_shape(climber.options(untied()[2]), shape);
      options.num_steps = 2;
      options.output.eval_every = 0;
      options.model.channels = 64;
      options.data.microbatch_size = 4;  // 24 KiB, which no MPI sends eagerly
      climber.expect_oracle(climber.climb(pipeline(), options, streams), options,
                            climber.size() / num_stages);
    }
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

}  // namespace
}  // namespace ladder
