#include "step1_ddp_reference/reference_ddp.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "common/comm/contract/rank_values.hpp"
#include "common/core/check.hpp"
#include "common/core/torch_types.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/rank_test.hpp"
#include "step1_ddp_reference/communicator_backend.hpp"
#include "step1_ddp_reference/reference_buckets.hpp"

namespace ladder {
namespace {

class ReferenceDdpTest : public RankTest {};

at::Tensor leaf(std::int64_t numel) {
  return at::empty({numel}, at::kMeta).set_requires_grad(true);
}

// Our plan of these tensors, which must be libtorch's.
std::vector<std::int64_t> plan_of(const std::vector<std::int64_t>& numels,
                                  NumberFormat format = NumberFormat::kFp32) {
  UnitShape unit = {"unit", {}};
  std::vector<at::Tensor> reversed;
  for (const std::int64_t numel : numels) {
    unit.tensors.push_back({"", {numel}});
    reversed.insert(reversed.begin(), leaf(numel).to(to_torch(format)));
  }
  const std::vector<std::int64_t> plan = plan_reference_buckets({unit}, {format});
  std::vector<std::int64_t> of_libtorch;
  if (!reversed.empty()) {
    for (const std::vector<std::size_t>& bucket : assign_reference_buckets(reversed)) {
      of_libtorch.push_back(0);
      for (const std::size_t i : bucket) of_libtorch.back() += reversed[i].numel();
    }
  }
  EXPECT_EQ(plan, of_libtorch);
  return plan;
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
  EXPECT_EQ(plan_of({5, 2 * kFirst - 1}, NumberFormat::kBf16), Numels{2 * kFirst + 4});
}

TEST(ReferenceBuckets, TakeTheTrainableInReverseAndWithoutPadding) {
  constexpr std::int64_t kLarge = 300'001;  // more than the first bucket; nothing that 16 divides
  const std::vector<UnitShape> units = {
      {"first", {{"table", {7}}, {"frozen", {5}, /*is_trainable=*/false}, {"bias", {3}}}},
      {"head", {{"head", {kLarge}}}}};
  EXPECT_EQ(plan_reference_buckets(units, {}), (std::vector<std::int64_t>{kLarge, 7 + 3}));
}

TEST_ON_RANKS(ReferenceDdpTest, ForwardWithoutBackwardIsNoStep) {
  const at::Tensor a = at::ones({3}).set_requires_grad(true);
  const at::Tensor b = at::ones({4}).set_requires_grad(true);
  FlatModel model({{"unit", {{"a", a}, {"b", b}}}});
  FlatGradients grads(model);
  ReferenceDdp ddp(model, comm_);
  ddp.arm(1);
  ddp.wrap([&](const Microbatch&) { return a.sum() + b.sum(); })({});
  expect_throws<CheckError>([&] { ddp.wait(); }, {"gave no gradient to 'b' 'a';"});
}

TEST_ON_RANKS(ReferenceDdpTest, NeedsATrainableParameter) {
  FlatModel frozen({{"unit", {{"w", at::ones({3})}}}});
  expect_throws<CheckError>([&] { ReferenceDdp ddp(frozen, comm_); },
                            {"no parameter is trainable"});
}

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
  expect_throws<CheckError>([&] { group->allreduce(tensors, largest); },
                            {"a reduction other than SUM"});
  std::vector<at::Tensor> two = {at::ones({2}), at::ones({2})};
  expect_throws<CheckError>([&] { group->allreduce(two); }, {"libtorch passes 2 tensors"});
  expect_throws<c10::Error>([&] { group->reduce(tensors); },
                            {"Backend ladder does not support reduce"});
}

}  // namespace
}  // namespace ladder
