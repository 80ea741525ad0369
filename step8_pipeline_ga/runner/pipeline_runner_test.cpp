#include "step8_pipeline_ga/runner/pipeline_runner.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/check.hpp"
#include "common/model/modules.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/rank_test.hpp"
#include "common/train/stop_signal.hpp"
#include "step8_pipeline_ga/runner/step_objective.hpp"
#include "step8_pipeline_ga/schedule/schedule_simulation.hpp"

namespace ladder {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kTokens = 6, kChannels = 24;

// A layer per chunk: a linear layer with a residual connection. The first one takes "tokens",
// numbers.
Layer layer(int index) {
  const at::Generator random =
      at::detail::createCPUGenerator(100 + static_cast<std::uint64_t>(index));
  const auto leaf = [&](at::IntArrayRef shape) {
    at::Tensor values = (at::randn(shape, random) * 0.3).set_requires_grad(true);
    values.mutable_grad() = at::zeros_like(values);
    return values;
  };
  const Linear linear = {leaf({kChannels, kChannels}), leaf({kChannels})};
  const auto forward = [=](const at::Tensor& input) {
    const at::Tensor x =
        input.scalar_type() == at::kLong
            ? (input.to(at::kFloat).unsqueeze(-1) * at::arange(1, kChannels + 1) / 50).sin()
            : input;
    return x + linear(x).tanh();
  };
  return {{concat("layer", index), {{"weight", linear.weight}, {"bias", linear.bias}}}, forward};
}

Model model_of(const std::vector<int>& layers) {
  Model model;
  for (const int index : layers) model.layers.push_back(layer(index));
  return model;
}

// Microbatches with 2, 1, 3, 2, … rows.
Microbatches batch_of(std::int64_t num_microbatches, std::int64_t first = 0) {
  std::vector<Microbatch> list;
  for (std::int64_t i = 0; i < num_microbatches; ++i) {
    const std::int64_t rows = 1 + (first + i + 1) % 3;
    const at::Tensor tokens =
        at::arange(rows * kTokens, at::kLong).view({rows, kTokens}) + 7 * (first + i);
    list.push_back({tokens, tokens, rows * kTokens});
  }
  return Microbatches(std::move(list));
}

const Objective kSquares = {
    .count = [](const Microbatches& batch) { return batch.num_targets(); },
    .loss_sum =
        [](const at::Tensor& outputs, const Microbatch& m) {
          return (outputs.sum(-1) - m.targets.to(at::kFloat) / 10).square().sum();
        },
};

struct Shape {
  Schedule schedule;
  std::int64_t num_microbatches;
  int chunks_per_stage = 1;
};

// The ranks of this program are the stages.
class Stage {
 public:
  explicit Stage(const Shape& shape, Communicator& stages = comm())
      : shape_(shape), chunks_(own_chunks(shape.chunks_per_stage)), stages_(stages) {}
  static Communicator& comm() { return test_world().comm(); }

  PipelineRunner runner() const {
    return PipelineRunner(chunks_, kChannels, stages_, [*this](std::int64_t m) {
      return plan_pipeline(shape_.schedule, stages_.size(), m, shape_.chunks_per_stage);
    });
  }
  const std::vector<Model>& chunks() const { return chunks_; }
  int num_layers() const { return shape_.chunks_per_stage * stages_.size(); }
  // The index in the whole model of this stage's i-th chunk.
  std::size_t layer_of(std::size_t i) const {
    return i * static_cast<std::size_t>(stages_.size()) + static_cast<std::size_t>(stages_.rank());
  }
  bool is_last() const { return stages_.rank() + 1 == stages_.size(); }

 private:
  static std::vector<Model> own_chunks(int count) {
    std::vector<Model> chunks;
    for (int i = 0; i < count; ++i) chunks.push_back(model_of({i * comm().size() + comm().rank()}));
    return chunks;
  }

  Shape shape_;
  std::vector<Model> chunks_;
  Communicator& stages_;
};

Model whole_model(int num_layers) {
  std::vector<int> all;
  for (int i = 0; i < num_layers; ++i) all.push_back(i);
  return model_of(all);
}

std::vector<Shape> shapes() {
  using enum Schedule;
  std::vector<Shape> all = {{kGpipe, 4}, {k1f1b, 4}, {k1f1b, 1}, {k1f1b, 7}, {kZeroBubble, 5}};
  if (Stage::comm().size() > 1) {
    all.push_back({kInterleaved, 4, 2});
    all.push_back({kInterleaved, 5, 3});
  }
  return all;
}

// GPipe with every second backward cut in two: right by check_plan(), but no schedule of ours.
PipelinePlan partly_cut_plan(std::int64_t num_microbatches) {
  PipelinePlan plan = plan_pipeline(Schedule::kGpipe, Stage::comm().size(), num_microbatches);
  for (std::vector<Action>& actions : plan.stages) {
    for (std::size_t i = 0; i < actions.size(); ++i) {
      if (actions[i].kind != ActionKind::kBackward || actions[i].microbatch % 2 > 0) continue;
      Action weight_half = actions[i];
      weight_half.kind = ActionKind::kWeightBackward;
      actions[i].kind = ActionKind::kInputBackward;
      actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(i) + 1, weight_half);
    }
  }
  return plan;
}

class PipelineRunnerTest : public RankTest {};

TEST_ON_RANKS(PipelineRunnerTest, EvaluatesAndPredictsWithoutGradients) {
  for (const Shape& shape : shapes()) {
    const Stage stage(shape);
    PipelineRunner runner = stage.runner();
    const Microbatches batch = batch_of(5);
    const Model whole = whole_model(stage.num_layers());
    const std::vector<double> sums = runner.loss_sums(kSquares, batch);
    ASSERT_EQ(sums.size(), 5u);
    for (std::int64_t i = 0; i < 5; ++i) {
      const double wanted =
          kSquares.loss_sum(whole.forward(batch[i].tokens), batch[i]).item<double>();
      EXPECT_EQ(sums[static_cast<std::size_t>(i)], stage.is_last() ? wanted : 0);
    }
    const at::Tensor logits = whole.forward(batch[3].tokens).slice(/*dim=*/1, -1).contiguous();
    EXPECT_TRUE(bits_equal(runner.forward(batch[3].tokens), logits));  // of the last token alone
    EXPECT_TRUE(runner.loss_sums(kSquares, Microbatches({})).empty());
    for (const Model& chunk : stage.chunks())
      EXPECT_EQ(chunk.layers[0].unit.tensors[0].tensor.grad().abs().max().item<float>(), 0);
  }
}

struct CountedParts : StepObjective {
  using StepObjective::StepObjective;
  void prepare(Microbatches& /*batch*/, const BatchOrigin& origin) override {
    EXPECT_TRUE(origin.is_validation);
    ++num_parts;
  }
  int num_parts = 0;
};

// In three parts. If the last rank is asked to stop, all leave after the first.
TEST_ON_RANKS(PipelineRunnerTest, ALongEvaluationRunsInParts) {
  const Stage stage({Schedule::k1f1b, 4});
  PipelineRunner runner = stage.runner();
  const Mesh mesh = Mesh::split(comm_, comm_.size());
  const Microbatches batch = batch_of(70);
  const Model whole = whole_model(stage.num_layers());
  double wanted = 0;
  {
    const at::NoGradGuard no_grad;
    for (const Microbatch& m : batch)
      wanted += kSquares.loss_sum(whole.forward(m.tokens), m).item<double>();
  }
  CountedParts squares(kSquares);
  EXPECT_EQ(evaluate(runner, squares, batch, mesh), wanted / kSquares.count(batch));
  EXPECT_EQ(squares.num_parts, 3);
  if (stage.is_last()) StopSignal::raise();
  EXPECT_EQ(evaluate(runner, squares, batch, mesh), kStoppedLoss);
  EXPECT_EQ(squares.num_parts, 4);
  comm_.barrier();
  const StopSignal forgets;
}

TEST_ON_RANKS(PipelineRunnerTest, APlanMayCutSomeBackwardsOnly) {
  const Stage whole({Schedule::kGpipe, 5}), partly_cut({Schedule::kGpipe, 5});
  const Microbatches batch = batch_of(5);
  whole.runner().accumulate_gradients(kSquares, batch, 1, 5);
  PipelineRunner runner(partly_cut.chunks(), kChannels, Stage::comm(), partly_cut_plan);
  int num_announced = 0;
  runner.accumulate_gradients(kSquares, batch, 1, 5, [&](const at::Tensor&) { ++num_announced; });
  EXPECT_EQ(num_announced, Stage::comm().rank() > 0 ? 2 * 3 : 0);  // of microbatches 0, 2 and 4
  for (std::size_t t = 0; t < 2; ++t) {
    EXPECT_TRUE(bits_equal(partly_cut.chunks()[0].layers[0].unit.tensors[t].tensor.grad(),
                           whole.chunks()[0].layers[0].unit.tensors[t].tensor.grad()));
  }
}

TEST_ON_RANKS(PipelineRunnerTest, RefusesABrokenPlanBeforeAnythingRuns) {
  const Stage stage({Schedule::k1f1b, 3});
  PipelineRunner runner(stage.chunks(), kChannels, Stage::comm(), [](std::int64_t m) {
    PipelinePlan plan = plan_pipeline(Schedule::k1f1b, Stage::comm().size(), m);
    std::swap(plan.stages[0].front(), plan.stages[0].back());
    return plan;
  });
  const Traffic before = Stage::comm().traffic();
  EXPECT_THROW(runner.accumulate_gradients(kSquares, batch_of(3), 1, 3), CheckError);
  EXPECT_EQ(Stage::comm().traffic(), before);
}

TEST_ON_RANKS(PipelineRunnerTest, RefusesFewerThanNoTargets) {
  const Stage stage({Schedule::k1f1b, 3});
  EXPECT_THAT([&] { stage.runner().accumulate_gradients(kSquares, batch_of(3), -1, 3); },
              ::testing::ThrowsMessage<CheckError>(HasSubstr("-1 target tokens")));
}

}  // namespace
}  // namespace ladder
