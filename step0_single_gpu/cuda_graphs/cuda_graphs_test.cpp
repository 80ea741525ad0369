// Graphs and the usual run side by side, on a GPU. tests/gpu runs whole trainers.
#include "step0_single_gpu/cuda_graphs/cuda_graphs.hpp"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/check.hpp"
#include "common/core/cuda_device.hpp"
#include "common/core/torch_types.hpp"
#include "common/optim/loss_scaler.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/train/build_model.hpp"
#include "common/train/start.hpp"
#include "step0_single_gpu/accumulate_gradients.hpp"
#include "step0_single_gpu/evaluate.hpp"

namespace ladder {
namespace {

constexpr std::int64_t kContext = 24;

TrainOptions small_model(at::ScalarType type) {
  TrainOptions options;
  options.model = {.context = kContext, .layers = 2, .heads = 2, .channels = 32};
  options.model.precision.params = format_of(type);
  options.device = Device::kCuda;
  finalize(options);
  return options;
}

// The same model twice gives the same parameters.
struct Replica {
  explicit Replica(bool has_graphs, at::ScalarType type = at::kFloat)
      : flat(layout_of(small_model(type))),
        model(build_model(small_model(type), flat)),
        grads(flat),
        loss_sum(loss_of(model, kNextToken)) {
    if (has_graphs) loss_sum = captured(loss_sum, grads);
  }

  FlatModel flat;
  Model model;
  FlatGradients grads;
  LossSum loss_sum;
};

Microbatch random_rows(std::int64_t num_rows) {
  const at::Tensor tokens = at::randint(258, {num_rows, kContext}, at::kLong);
  const at::Tensor targets = tokens.roll(-1, 1);
  targets.slice(1, kContext - num_rows).fill_(kIgnoredTarget);  // another number in each shape
  return {tokens, targets, targets.ne(kIgnoredTarget).sum().item<std::int64_t>()};
}

class CudaGraphs : public ::testing::Test {
 protected:
  CudaGraphs() {
    set_deterministic(true);
    at::manual_seed(11);
  }

  // Past the warm-up and the capture.
  static void settle(const Replica& replica) {
    for (int i = 0; i < 5; ++i) replica.loss_sum(random_rows(3)).backward();
  }
};

// Every step ends with a microbatch of fewer rows. Parameters change in place, as an optimizer
// changes them, and so does the loss scale.
TEST_F(CudaGraphs, ChangeNoBit) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    Replica usual(false, type), graphs(true, type);
    LossScaler scaler;
    if (type == at::kHalf) scaler = LossScaler({.initial = 1024, .window = 1});
    const LossSum usual_loss = scaler.applied_to(usual.loss_sum);
    const LossSum loss = scaler.applied_to(graphs.loss_sum);
    for (int step = 0; step < 6; ++step) {
      SCOPED_TRACE(concat(type, ", step ", step));
      const Microbatches batch({random_rows(3), random_rows(3), random_rows(2)});
      const auto num_targets = static_cast<double>(batch.num_targets());
      EXPECT_EQ(accumulate_gradients(loss, batch, num_targets),
                accumulate_gradients(usual_loss, batch, num_targets));
      EXPECT_TRUE(bits_equal(graphs.grads.flat().cpu(), usual.grads.flat().cpu()));
      EXPECT_GT(graphs.grads.flat().abs().max().item<float>(), 0);
      EXPECT_EQ(evaluate(loss, batch), evaluate(usual_loss, batch));
      scaler.accepts(1);  // which doubles the scale
      for (Replica* replica : {&usual, &graphs}) {
        replica->flat.params().mul_(0.9);
        replica->grads.zero();
      }
    }
  }
}

// The loss of a microbatch is its own, not the buffer that the next one overwrites.
TEST_F(CudaGraphs, LossesStay) {
  const Replica replica(true);
  settle(replica);
  const at::Tensor first = replica.loss_sum(random_rows(3));
  const double value = first.item<double>();
  first.backward();
  const at::Tensor second = replica.loss_sum(random_rows(3));
  EXPECT_EQ(first.item<double>(), value);
  EXPECT_NE(second.item<double>(), value);
}

TEST_F(CudaGraphs, RefuseAForwardBeforeTheBackwardOfThePreviousOne) {
  const Replica replica(true);
  settle(replica);
  const at::Tensor loss = replica.loss_sum(random_rows(3));
  expect_throws<CheckError>([&] { replica.loss_sum(random_rows(3)); }, {"which has not run"});
}

TEST_F(CudaGraphs, RefuseASecondBackward) {
  const Replica replica(true);
  settle(replica);
  const at::Tensor loss = replica.loss_sum(random_rows(3));
  loss.backward({}, /*retain_graph=*/true);
  expect_throws<CheckError>([&] { loss.backward(); }, {"second backward"});
}

TEST_F(CudaGraphs, RefuseHooks) {
  const Replica replica(true);
  settle(replica);
  replica.grads.leaves()[2].tensor.register_hook(
      [](const at::Tensor& gradient) { return gradient; });
  expect_throws<CheckError>([&] { replica.loss_sum(random_rows(3)); },
                            {replica.grads.leaves()[2].name});
}

// The loss's nodes would add to .grad on a stream that is not captured.
TEST_F(CudaGraphs, RefuseALossFromBeforeTheCapture) {
  const Replica replica(true);
  const at::Tensor kept = replica.loss_sum(random_rows(3));
  for (int i = 0; i < 2; ++i) replica.loss_sum(random_rows(3)).backward();
  expect_throws<CheckError>([&] { replica.loss_sum(random_rows(3)); },
                            {"let go of earlier losses"});
}

}  // namespace
}  // namespace ladder
