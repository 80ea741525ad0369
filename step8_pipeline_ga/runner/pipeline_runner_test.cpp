#include "step8_pipeline_ga/runner/pipeline_runner.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "common/core/check.hpp"
#include "common/core/stop_signal.hpp"
#include "common/model/modules.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/rank_test.hpp"
#include "step8_pipeline_ga/runner/step_objective.hpp"

namespace ladder {
namespace {

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

// Microbatches with 2, 3, 1, 2, … rows.
Microbatches batch_of(std::int64_t num_microbatches) {
  std::vector<Microbatch> list;
  for (std::int64_t i = 0; i < num_microbatches; ++i) {
    const std::int64_t rows = 1 + (i + 1) % 3;
    const at::Tensor tokens = at::arange(rows * kTokens, at::kLong).view({rows, kTokens}) + 7 * i;
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

// The ranks of this program are the stages, each with the layer of its number.
class PipelineRunnerTest : public RankTest {
 protected:
  using Planner = std::function<PipelinePlan(std::int64_t num_microbatches)>;

  Planner planner(Schedule schedule) const {
    return [=, size = size_](std::int64_t m) { return plan_pipeline(schedule, size, m); };
  }
  PipelineRunner runner(const Model& chunk, const Planner& planner) const {
    return PipelineRunner({chunk}, kChannels, comm_, planner);
  }
  Model own_layer() const { return {{layer(rank_)}}; }
};

// GPipe with every second backward cut in two: right by check_plan(), but no schedule of ours.
PipelinePlan partly_cut(PipelinePlan plan) {
  for (std::vector<Action>& actions : plan.stages) {
    for (std::size_t i = 0; i < actions.size(); ++i) {
      if (actions[i].kind != ActionKind::kBackward || actions[i].microbatch % 2 > 0) continue;
      Action wgrad = actions[i];
      wgrad.kind = ActionKind::kWeightBackward;
      actions[i].kind = ActionKind::kInputBackward;
      actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(i) + 1, wgrad);
    }
  }
  return plan;
}

struct CountedParts : StepObjective {
  using StepObjective::StepObjective;
  void prepare(Microbatches& /*batch*/, const BatchOrigin& origin) override {
    EXPECT_TRUE(origin.is_validation);
    ++num_parts;
  }
  int num_parts = 0;
};

// The evaluation has three parts. If the last rank is asked to stop, all leave after the first.
TEST_ON_RANKS(PipelineRunnerTest, ALongEvaluationRunsInParts) {
  PipelineRunner stage = runner(own_layer(), planner(Schedule::k1f1b));
  const Mesh mesh = Mesh::split(comm_, comm_.size());
  const Microbatches batch = batch_of(70);
  Model whole;
  for (int i = 0; i < size_; ++i) whole.layers.push_back(layer(i));
  double wanted = 0;
  {
    const at::NoGradGuard no_grad;
    for (const Microbatch& m : batch)
      wanted += kSquares.loss_sum(whole.forward(m.tokens), m).item<double>();
  }
  CountedParts squares(kSquares);
  EXPECT_EQ(evaluate(stage, squares, batch, mesh), wanted / kSquares.count(batch));
  EXPECT_EQ(squares.num_parts, 3);
  if (rank_ + 1 == size_) StopSignal::raise();
  EXPECT_EQ(evaluate(stage, squares, batch, mesh), kStoppedLoss);
  EXPECT_EQ(squares.num_parts, 4);
  comm_.barrier();
  const StopSignal forgets;
}

TEST_ON_RANKS(PipelineRunnerTest, APlanMayCutSomeBackwardsOnly) {
  const Model whole = own_layer(), partly = own_layer();
  const Microbatches batch = batch_of(5);
  const Planner gpipe = planner(Schedule::kGpipe);
  runner(whole, gpipe).accumulate_gradients(kSquares, batch, 1, 5);
  int num_announced = 0;
  runner(partly, [=](std::int64_t m) {
    return partly_cut(gpipe(m));
  }).accumulate_gradients(kSquares, batch, 1, 5, [&](const at::Tensor&) { ++num_announced; });
  EXPECT_EQ(num_announced, rank_ > 0 ? 2 * 3 : 0);  // of microbatches 0, 2 and 4
  for (std::size_t t = 0; t < 2; ++t) {
    EXPECT_TRUE(bits_equal(partly.layers[0].unit.tensors[t].tensor.grad(),
                           whole.layers[0].unit.tensors[t].tensor.grad()));
  }
}

}  // namespace
}  // namespace ladder
