#include "step9_diloco/diloco.hpp"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "common/comm/threads/run_as_threads.hpp"
#include "common/core/check.hpp"

namespace ladder {
namespace {

using ::testing::ElementsAreArray;

// A model of tensors of these sizes, all ones.
std::vector<Unit> ones(const std::vector<std::int64_t>& sizes) {
  Unit unit = {"unit", {}};
  for (std::size_t i = 0; i < sizes.size(); ++i)
    unit.tensors.push_back({concat("tensor", i), at::ones({sizes[i]})});
  return {unit};
}

// One worker's run: `train` moves its parameters in each inner step, counted from 1.
struct Worker {
  Worker(const std::vector<std::int64_t>& sizes, const DilocoOptions& diloco_options,
         Averager& averager)
      : options(diloco_options),
        model(ones(sizes)),
        global(ones(sizes)),
        diloco(model, global, options, averager) {}

  void step(std::int64_t number, const std::function<void(const at::Tensor& params)>& train) {
    const at::NoGradGuard no_grad;
    train(model.params());
    const DilocoAction due = plan_diloco(options, number);
    if (due.starts) diloco.start_average();
    if (due.finishes) diloco.finish_round();
  }

  DilocoOptions options;
  FlatModel model, global;
  Diloco diloco;
};

// Before each inner step, the first value of each tensor.
using Trace = std::vector<std::vector<double>>;
Trace trace(int num_workers, const std::vector<std::int64_t>& sizes, const DilocoOptions& options,
            std::int64_t num_steps, const std::vector<double>& moves) {
  Trace values(sizes.size());
  run_as_threads(num_workers, [&](Communicator& comm) {
    GroupAverager averager(comm);
    Worker worker(sizes, options, averager);
    for (std::int64_t step = 1; step <= num_steps; ++step) {
      if (comm.rank() == 0) {
        for (std::size_t i = 0; i < sizes.size(); ++i) {
          values[i].push_back(worker.model.named_params()[i].tensor.view({-1})[0].item<double>());
        }
      }
      const double move = moves[static_cast<std::size_t>(comm.rank())];
      worker.step(step, [&](const at::Tensor& params) { params.add_(move); });
    }
  });
  return values;
}

TEST(Diloco, TwoFragmentsTakeTurns) {
  const DilocoOptions options = {
      .sync_every = 6, .num_fragments = 2, .outer_lr = 2, .outer_momentum = 0};
  const Trace values = trace(2, {1, 1}, options, 16, {-2, -2});
  EXPECT_THAT(values[0], ElementsAreArray({1, -1, -3, -11, -13, -15, -17, -19, -21, -35, -37, -39,
                                           -41, -43, -45, -59}));
  EXPECT_THAT(values[1], ElementsAreArray({1, -1, -3, -5, -7, -9, -23, -25, -27, -29, -31, -33, -47,
                                           -49, -51, -53}));
}

TEST(Diloco, WorkersThatMoveDifferentlyMeetInTheMiddle) {
  const Trace values = trace(2, {1}, {.sync_every = 4}, 9, {-1, -3});
  EXPECT_NEAR(values[0][4], -9.64, 1e-5);
  EXPECT_NEAR(values[0][8], -24.816, 1e-5);
}

// With a delay, what a worker learns while the average is in flight is lost, unless α keeps it. One
// worker moves by −1 per step, in rounds of 4, of which the average has seen 3 with a delay of 1:
//   outer lr 1: global = 1 − 3 = −2.  α = 0: −2.  α = 0.5: half of −2, half of −3.  α = 1: −3.
TEST(Diloco, AlphaKeepsAShareOfTheLocalParameters) {
  for (const auto& [alpha, wanted] :
       std::vector<std::pair<double, double>>{{0, -2}, {0.25, -2.25}, {0.5, -2.5}, {1, -3}}) {
    const DilocoOptions options = {
        .sync_every = 4, .sync_delay = 1, .alpha = alpha, .outer_lr = 1, .outer_momentum = 0};
    EXPECT_EQ(trace(1, {1}, options, 5, {-1})[0][4], wanted) << alpha;
  }
}

// ---- Rounds that fail -------------------------------------------------------------------------

// A worker alone, whose averages with these numbers, from 1, fail.
class FailingAverager final : public Averager {
 public:
  explicit FailingAverager(std::set<int> failures) : failures_(std::move(failures)) {}
  void start(at::Tensor) override { ++number_; }
  std::optional<int> finish() override {
    return failures_.contains(number_) ? std::nullopt : std::optional(1);
  }

 private:
  std::set<int> failures_;
  int number_ = 0;
};

// Nothing is lost before finish_round() gives it up: a worker that stops saves it, and does not
// call it.
TEST(Diloco, AFailedRoundThatIsNotFinishedIsKept) {
  FailingAverager averager({1});
  Worker worker({1}, {.sync_every = 4, .sync_delay = 1}, averager);
  for (std::int64_t step = 1; step <= 3; ++step)
    worker.step(step, [](const at::Tensor& params) { params.sub_(1); });
  EXPECT_TRUE(worker.diloco.is_started());
  worker.diloco.settle();
  EXPECT_EQ(worker.model.params()[0].item<double>(), 1 - 3);
  EXPECT_EQ(worker.global.params()[0].item<double>(), 1);
  EXPECT_EQ(worker.diloco.round().outer_steps, 0);
  EXPECT_FALSE(worker.diloco.round().pseudogradient.defined());
  EXPECT_FALSE(worker.diloco.finish_round());
  EXPECT_EQ(worker.model.params()[0].item<double>(), 1);
  EXPECT_FALSE(worker.diloco.is_started());
}

}  // namespace
}  // namespace ladder
