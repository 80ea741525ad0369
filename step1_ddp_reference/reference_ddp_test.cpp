#include "step1_ddp_reference/reference_ddp.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tanh.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "common/comm/contract/rank_values.hpp"
#include "common/comm/rank_order_fold.hpp"
#include "common/core/check.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/rank_test.hpp"
#include "step0_single_gpu/evaluate.hpp"
#include "step1_ddp_reference/communicator_backend.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

constexpr std::int64_t kVocabulary = 4301;
constexpr std::int64_t kChannels = 61;  // nothing that 16 divides: buckets and layout differ

at::Tensor random_leaf(std::vector<std::int64_t> shape, std::uint64_t seed) {
  const std::int64_t numel = c10::multiply_integers(shape);
  return (values_of(0, numel, at::kFloat, seed) * 0.01).view(shape).set_requires_grad(true);
}

// Predicts a word from the previous one. The table is tied (it is used at both ends), the scale is
// frozen, and the head alone is larger than the first bucket.
struct SmallModel {
  at::Tensor table = random_leaf({kVocabulary + 3, kChannels}, 1);
  at::Tensor scale = random_leaf({kChannels}, 2).detach() + 1.0;
  at::Tensor weight = random_leaf({kChannels, kChannels}, 3);
  at::Tensor bias = random_leaf({kChannels}, 4);
  at::Tensor head = random_leaf({kVocabulary, kChannels}, 5);
  FlatModel flat{units()};
  FlatGradients grads{flat};
  LossSum loss_sum = [this](const Microbatch& m) {
    const at::Tensor hidden =
        at::tanh(at::addmm(bias, at::embedding(table, m.tokens.flatten()) * scale, weight));
    const at::Tensor logits = at::mm(hidden, (head + table.narrow(0, 0, kVocabulary)).t());
    return at::cross_entropy_loss(logits, m.targets.flatten(), {}, at::Reduction::Sum);
  };

  std::vector<Unit> units() const {
    return {{"embedding", {{"table", table}}},
            {"block", {{"scale", scale}, {"weight", weight}, {"bias", bias}}},
            {"head", {{"head", head}}}};
  }
  static constexpr std::int64_t kTrainable =
      (2 * kVocabulary + 3) * kChannels + kChannels * kChannels + kChannels;
};

// Every rank can compute every other rank's rows.
Microbatches batch_of(int rank, std::int64_t step, std::int64_t num_microbatches) {
  std::vector<Microbatch> list;
  for (std::int64_t j = 0; j < num_microbatches; ++j) {
    Random random(static_cast<std::uint64_t>((step * 100 + j) * 100 + rank));
    const at::Tensor ids = at::empty({2, 4}, at::kLong);
    for (int i = 0; i < 8; ++i) ids.mutable_data_ptr<std::int64_t>()[i] = random.below(kVocabulary);
    list.push_back({ids, (ids + 1).remainder(kVocabulary), 8});
  }
  return Microbatches(std::move(list));
}

class ReferenceDdpTest : public RankTest {
 protected:
  const std::string start_ = concat("rank ", rank_, " of ", size_, ": ReferenceDdp: ");

  // What the ranks' gradients sum up to in rank order, computed in this process alone.
  at::Tensor fold_of_all_ranks(std::int64_t step, std::int64_t num_microbatches) const {
    SmallModel model;
    at::Tensor sum;
    for (int r = 0; r < size_; ++r) {
      model.grads.zero();
      accumulate_gradients(model.loss_sum, batch_of(r, step, num_microbatches), 8.0 * size_);
      sum = r == 0 ? model.grads.flat().clone() : sum + model.grads.flat();
    }
    return sum;
  }

  Traffic sent_since(const Traffic& before) const {
    Traffic sent = comm_.traffic();
    sent -= before;
    return sent;
  }
};

// ---- The plan -----------------------------------------------------------------------------------

std::vector<std::int64_t> plan_of(const std::vector<std::int64_t>& numels) {
  Unit unit{"unit", {}};
  for (const std::int64_t numel : numels)
    unit.tensors.push_back({"", at::empty({numel}, at::kMeta).set_requires_grad(true)});
  return plan_reference_buckets({unit});
}

TEST(ReferenceBuckets, AreClosedOnceTheyHoldTheirCapacity) {
  constexpr std::int64_t kFirst = (1 << 20) / 4;
  constexpr std::int64_t kOther = 25 * kFirst;
  using Numels = std::vector<std::int64_t>;
  EXPECT_EQ(plan_of({}), Numels{});
  EXPECT_EQ(plan_of({7}), Numels{7});
  EXPECT_EQ(plan_of({5, kFirst - 1}), Numels{kFirst + 4}) << "not full: the next one still goes in";
  EXPECT_EQ(plan_of({5, kFirst}), (Numels{kFirst, 5})) << "exactly full is full";
  EXPECT_EQ(plan_of({5, 3 * kFirst}), (Numels{3 * kFirst, 5})) << "larger than its bucket";
  EXPECT_EQ(plan_of({6, 5, kOther - 1, kFirst}), (Numels{kFirst, kOther + 4, 6}));
  EXPECT_EQ(plan_of({kOther, kOther, kFirst}), (Numels{kFirst, kOther, kOther}));
}

TEST(ReferenceBuckets, TakeTheTrainableInReverseAndWithoutPadding) {
  const SmallModel model;
  const std::int64_t head = kVocabulary * kChannels;
  EXPECT_EQ(plan_reference_buckets(model.units()),
            (std::vector<std::int64_t>{head, SmallModel::kTrainable - head}));
}

// ---- The sum ------------------------------------------------------------------------------------

TEST_ON_RANKS(ReferenceDdpTest, EqualsTheFoldInRankOrderToTheBit) {
  for (const std::int64_t num_microbatches : {1, 3}) {
    SmallModel model;
    ReferenceDdp ddp(model.flat, comm_);
    const LossSum loss_sum = ddp.wrap(model.loss_sum);
    for (std::int64_t step = 0; step < 3; ++step) {
      model.grads.zero();
      const Microbatches batch = batch_of(rank_, step, num_microbatches);
      ddp.arm(batch.size());
      accumulate_gradients(loss_sum, batch, 8.0 * size_);
      ddp.wait();
      EXPECT_TRUE(bits_equal(model.grads.flat(), fold_of_all_ranks(step, num_microbatches)))
          << "step " << step << ", " << num_microbatches << " microbatches";
      for (const auto& [name, leaf] : model.flat.leaves()) {
        if (!leaf.requires_grad()) continue;
        EXPECT_TRUE(leaf.grad().is_alias_of(model.grads.flat())) << name;
      }
      EXPECT_FALSE(model.scale.grad().defined()) << "frozen";
    }
  }
}

TEST_ON_RANKS(ReferenceDdpTest, RanksDoDiffer) {  // or the test above would prove nothing
  if (size_ == 1) return;
  SmallModel model;
  accumulate_gradients(model.loss_sum, batch_of(rank_, 0, 1), 8.0 * size_);
  EXPECT_FALSE(bits_equal(model.grads.flat(), fold_of_all_ranks(0, 1)));
  SmallModel neighbour;
  accumulate_gradients(neighbour.loss_sum, batch_of((rank_ + 1) % size_, 0, 1), 8.0 * size_);
  EXPECT_FALSE(bits_equal(model.grads.flat(), neighbour.grads.flat()));
}

TEST_ON_RANKS(ReferenceDdpTest, AnotherOneCanTakeOverTheModel) {
  SmallModel model;
  for (std::int64_t step = 0; step < 2; ++step) {
    ReferenceDdp ddp(model.flat, comm_);  // and no hook of the one before is left
    model.grads.zero();
    ddp.arm(1);
    accumulate_gradients(ddp.wrap(model.loss_sum), batch_of(rank_, step, 1), 8.0 * size_);
    ddp.wait();
    EXPECT_TRUE(bits_equal(model.grads.flat(), fold_of_all_ranks(step, 1))) << step;
  }
}

// ---- What it costs ------------------------------------------------------------------------------

// ---- Counting microbatches ----------------------------------------------------------------------

TEST_ON_RANKS(ReferenceDdpTest, UnarmedBackwardsStayOnTheirRank) {
  SmallModel model, alone;
  ReferenceDdp ddp(model.flat, comm_);
  const Traffic before = comm_.traffic();
  accumulate_gradients(ddp.wrap(model.loss_sum), batch_of(rank_, 0, 2), 8.0 * size_);
  accumulate_gradients(alone.loss_sum, batch_of(rank_, 0, 2), 8.0 * size_);
  EXPECT_EQ(sent_since(before), Traffic{});
  EXPECT_TRUE(bits_equal(model.grads.flat(), alone.grads.flat()));
}

TEST_ON_RANKS(ReferenceDdpTest, RefusesStepsThatDoNotAddUp) {
  SmallModel model;
  const auto expect_error = [&](const std::function<void()>& call, const std::string& part) {
    EXPECT_THAT(call, ThrowsMessage<CheckError>(AllOf(StartsWith(start_), HasSubstr(part))));
  };
  ReferenceDdp ddp(model.flat, comm_);
  const LossSum loss_sum = ddp.wrap(model.loss_sum);
  const Microbatches batch = batch_of(rank_, 0, 2);
  expect_error([&] { ddp.wait(); }, "wait() without arm()");
  expect_error([&] { ddp.arm(0); }, "arm() announces 0 microbatches");
  ddp.arm(2);
  expect_error([&] { ddp.arm(2); }, "arm() before the wait() of the previous step");
  loss_sum(batch[0]).backward();
  expect_error([&] { ddp.wait(); }, "announced 2 microbatches, but only 1 ran");
  ddp.arm(1);
  loss_sum(batch[0]).backward();
  expect_error([&] { loss_sum(batch[1]); }, "announced 1 microbatches, and this is one more");
}

// ---- Starts and ends ----------------------------------------------------------------------------

// On every rank, so that each can report it. A single rank would leave the others waiting.
TEST_ON_RANKS(ReferenceDdpTest, AParameterWithoutAGradientIsNamed) {
  SmallModel model;
  const auto expect_missing = [&](const LossSum& loss_sum, const std::string& names) {
    ReferenceDdp ddp(model.flat, comm_);
    ddp.arm(2);
    const LossSum wrapped = ddp.wrap(loss_sum);
    wrapped(batch_of(rank_, 0, 1)[0]).backward();
    wrapped(batch_of(rank_, 0, 1)[0]).backward();
    EXPECT_THAT([&] { ddp.wait(); },
                ThrowsMessage<CheckError>(AllOf(StartsWith(start_), HasSubstr(names))));
  };
  expect_missing(
      [&](const Microbatch&) { return model.table.sum() + model.weight.sum() + model.head.sum(); },
      "gave no gradient to 'bias';");
  expect_missing([&](const Microbatch&) { return model.weight.sum() + model.bias.sum(); },
                 "gave no gradient to 'head' 'table';");
  // Used in the first microbatch only: .grad is not empty, and yet it is not ready.
  std::int64_t microbatch = 0;
  expect_missing(
      [&](const Microbatch&) {
        const at::Tensor all = model.table.sum() + model.weight.sum() + model.head.sum();
        return microbatch++ == 0 ? all + model.bias.sum() : all;
      },
      "gave no gradient to 'bias';");
}

TEST_ON_RANKS(ReferenceDdpTest, ForwardWithoutBackwardIsNoStep) {
  SmallModel model;
  ReferenceDdp ddp(model.flat, comm_);
  ddp.arm(1);
  ddp.wrap(model.loss_sum)(batch_of(rank_, 0, 1)[0]);
  EXPECT_THAT(
      [&] { ddp.wait(); },
      ThrowsMessage<CheckError>(HasSubstr("gave no gradient to 'head' 'bias' 'weight' 'table';")));
}

TEST_ON_RANKS(ReferenceDdpTest, NeedsATrainableParameter) {
  FlatModel frozen({{"unit", {{"w", at::ones({3})}}}});
  EXPECT_THAT([&] { ReferenceDdp ddp(frozen, comm_); },
              ThrowsMessage<CheckError>(HasSubstr("no parameter is trainable")));
}

// ---- The process group --------------------------------------------------------------------------

TEST_ON_RANKS(ReferenceDdpTest, ProcessGroupFinishesBeforeItReturns) {
  const auto group = make_process_group(comm_);
  EXPECT_EQ(group->getRank(), rank_);
  EXPECT_EQ(group->getSize(), size_);
  std::vector<at::Tensor> sum = {values_of(rank_, 1001, at::kFloat)};
  const auto reduced = group->allreduce(sum);
  EXPECT_TRUE(reduced->isCompleted());
  EXPECT_TRUE(reduced->wait());
  const auto result = reduced->getFuture()->value().toTensorVector();
  EXPECT_TRUE(result.at(0).is_same(sum[0]));
  EXPECT_TRUE(bits_equal(sum[0], fold_of_all(size_, 1001, at::kFloat)));
  std::vector<at::Tensor> values = {values_of(rank_, 5, at::kLong)};
  c10d::BroadcastOptions from_last;
  from_last.rootRank = size_ - 1;
  EXPECT_TRUE(group->broadcast(values, from_last)->isSuccess());
  EXPECT_TRUE(bits_equal(values[0], values_of(size_ - 1, 5, at::kLong)));
}

TEST_ON_RANKS(ReferenceDdpTest, ProcessGroupRefusesWhatItDoesNotDo) {
  const auto group = make_process_group(comm_);
  std::vector<at::Tensor> tensors = {at::ones({2})};
  c10d::AllreduceOptions largest;
  largest.reduceOp = c10d::ReduceOp::MAX;
  EXPECT_THAT([&] { group->allreduce(tensors, largest); },
              ThrowsMessage<CheckError>(HasSubstr("a reduction other than SUM")));
  std::vector<at::Tensor> two = {at::ones({2}), at::ones({2})};
  EXPECT_THAT([&] { group->allreduce(two); },
              ThrowsMessage<CheckError>(HasSubstr("libtorch passes 2 tensors")));
  EXPECT_THAT([&] { group->reduce(tensors); },
              ThrowsMessage<c10::Error>(HasSubstr("Backend ladder does not support reduce")));
}

}  // namespace
}  // namespace ladder
