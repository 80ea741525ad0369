#include "common/optim/flat_model.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/testing/expect_throws.hpp"

namespace ladder {
namespace {

at::Tensor leaf(at::IntArrayRef shape) {
  return at::randn(shape).set_requires_grad(true);
}

std::vector<Unit> odd_units() {
  return {{"first", {{"a", leaf({5, 7})}, {"b", leaf({1})}}},
          {"second", {{"c", leaf({16})}, {"d", leaf({2, 3, 3})}}}};
}

TEST(FlatLayout, AlignsTensorsAndPadsUnits) {
  const FlatLayout layout = plan_flat_layout(odd_units());
  ASSERT_EQ(layout.tensors.size(), 4u);
  EXPECT_EQ(layout.tensors[0].padded_numel, 48);
  EXPECT_EQ(layout.tensors[1].start, 48);
  EXPECT_EQ(layout.tensors[2].start, 64);
  EXPECT_EQ(layout.tensors[2].padded_numel, 16);
  EXPECT_EQ(layout.units[1].start, 64);
  EXPECT_EQ(layout.units[1].numel, 48);
  EXPECT_EQ(layout.numel, 112);
  EXPECT_EQ(layout.num_parameters, 35 + 1 + 16 + 18);

  const FlatLayout sliced = plan_flat_layout(odd_units(), 3 * 1024);
  EXPECT_EQ(sliced.units[0].numel, 3072);
  EXPECT_EQ(sliced.units[1].start, 3072);
  EXPECT_EQ(sliced.numel, 6144);
  EXPECT_EQ(sliced.num_parameters, layout.num_parameters);
}

// Blocks of a norm are those of a rank that has only what all parts use, and the second part.
TEST(FlatLayout, EachPartBeginsAtANormBlock) {
  const auto part = [](int index) {
    return TensorPart{.whole = "w",
                      .shape = {40},
                      .n = 40,
                      .begin = index * 20,
                      .end = (index + 1) * 20,
                      .index = index};
  };
  Unit unit = {"unit", {{"bias", leaf({3})}, {"w#0", leaf({20})}, {"w#1", leaf({20})}}};
  unit.parts = {{"w#0", part(0)}, {"w#1", part(1)}};
  const FlatLayout layout = plan_flat_layout({unit});
  EXPECT_EQ(layout.tensors[0].padded_numel, kNormBlock);
  EXPECT_EQ(layout.tensors[1].start, kNormBlock);
  EXPECT_EQ(layout.tensors[1].padded_numel, kNormBlock);
  EXPECT_EQ(layout.tensors[2].start, 2 * kNormBlock);
  EXPECT_EQ(layout.tensors[2].padded_numel, 32);
  EXPECT_EQ(layout.numel, 2 * kNormBlock + 32);
  EXPECT_EQ(layout.num_parameters, 43);
  ASSERT_TRUE(layout.tensors[2].part.has_value());
  EXPECT_EQ(layout.tensors[2].part->begin, 20);
  EXPECT_EQ(parts_of(layout).size(), 2u);

  Unit only = {"unit", {{"w#0", leaf({20})}, {"w#1", leaf({20})}}};  // nothing is shared
  only.parts = unit.parts;
  EXPECT_EQ(plan_flat_layout({only}).tensors[0].start, 0);
  EXPECT_EQ(plan_flat_layout({only}).tensors[1].start, kNormBlock);
}

TEST(FlatLayout, RefusesDuplicateNamesAndBadMultiples) {
  std::vector<Unit> units = odd_units();
  units[1].tensors[0].name = "a";
  EXPECT_THROW(plan_flat_layout(units), CheckError);
  EXPECT_THROW(plan_flat_layout(odd_units(), 0), CheckError);
  EXPECT_EQ(plan_flat_layout({}).numel, 0);
}

TEST(FlatModel, TensorsBecomeViewsWithTheirContents) {
  std::vector<Unit> units = odd_units();
  const at::Tensor handle = units[1].tensors[1].tensor;  // like the one in the model
  const at::Tensor before = handle.detach().clone();
  FlatModel model(units);
  EXPECT_TRUE(handle.detach().equal(before));
  EXPECT_TRUE(handle.requires_grad());
  EXPECT_TRUE(handle.is_leaf());
  const at::NoGradGuard no_grad;
  model.params().narrow(0, model.layout().tensors[3].start, 1).fill_(42.0);
  EXPECT_EQ(handle.flatten()[0].item<float>(), 42.0f);
  EXPECT_EQ(model.named_params()[3].tensor.data_ptr(), handle.data_ptr());
}

TEST(FlatModel, BackwardAccumulatesIntoTheFlatGradient) {
  std::vector<Unit> units = odd_units();
  const at::Tensor a = units[0].tensors[0].tensor;
  const FlatModel model(units);
  FlatGradients grads(model);
  for (int pass = 0; pass < 2; ++pass) (a * 3.0).sum().backward();
  EXPECT_EQ(grads.flat().narrow(0, 0, 35).min().item<float>(), 6.0f);
  EXPECT_EQ(grads.flat().narrow(0, 35, 77).abs().max().item<float>(), 0.0f);
  EXPECT_EQ(a.grad().data_ptr(), grads.flat().data_ptr());
  grads.zero();
  EXPECT_EQ(grads.flat().abs().max().item<float>(), 0.0f);
  EXPECT_EQ(a.grad().data_ptr(), grads.flat().data_ptr());
}

// A buffer has one dtype, so a model of several is refused, naming the tensor.
TEST(FlatModel, RefusesAnotherDtypeByName) {
  std::vector<Unit> units = odd_units();
  units[1].tensors[0].tensor = at::zeros({16}, at::kBFloat16).set_requires_grad(true);
  expect_throws<CheckError>([&] { FlatModel model(units); }, {"'c'", "BFloat16"});
}

TEST(FlatModel, HoldsEightBytesPerElementAndNothingElse) {
  install_memory_ledger();
  const MemoryReading before = read_memory();
  std::vector<Unit> units;
  {
    const MemoryScope scope(MemoryCategory::kParameters);
    units = odd_units();
  }
  const FlatModel model(units);
  const FlatGradients grads(model);
  const MemoryReading after = read_memory();
  EXPECT_EQ(after.live(MemoryCategory::kParameters) - before.live(MemoryCategory::kParameters),
            112 * 4);
  EXPECT_EQ(after.live(MemoryCategory::kGradients) - before.live(MemoryCategory::kGradients),
            112 * 4);
  EXPECT_EQ(after.total_live_bytes - before.total_live_bytes, 112 * 8);
}

TEST(FlatModel, TakesOverAModelThatIsBeingMadeUnitByUnit) {
  const std::vector<Unit> units = odd_units();
  const at::Tensor first = units[0].tensors[0].tensor.detach().clone();
  FlatModel flat(plan_flat_layout(units));
  EXPECT_THROW(flat.add(units[1]), CheckError);  // out of order
  flat.add(units[0]);
  EXPECT_THROW(FlatGradients early(flat), CheckError);  // a unit is missing
  flat.add(units[1]);
  EXPECT_THROW(flat.add(units[1]), CheckError);  // one too many
  EXPECT_EQ(flat.leaves().size(), 4u);
  EXPECT_TRUE(flat.named_params()[0].tensor.equal(first));
  EXPECT_EQ(units[0].tensors[0].tensor.data_ptr(), flat.params().data_ptr());
  for (const NamedTensor& leaf : flat.leaves()) EXPECT_FALSE(leaf.tensor.grad().defined());
  const FlatGradients grads(flat);
  for (const NamedTensor& leaf : flat.leaves()) EXPECT_TRUE(leaf.tensor.grad().defined());
}

// A second copy of the model, even if freed at once, would stay in the process's heap.
TEST(FlatModel, NeverHoldsMoreThanOneUnitBesidesItsBuffers) {
  install_memory_ledger();
  const std::vector<Unit> shapes = {{"first", {{"a", leaf({1000})}}},
                                    {"second", {{"b", leaf({1000})}}},
                                    {"third", {{"c", leaf({1000})}}}};
  reset_memory_peaks();
  const std::int64_t before = read_memory().total_live_bytes;
  FlatModel flat(plan_flat_layout(shapes));
  for (const char* name : {"first", "second", "third"}) {
    const std::string tensor(1, static_cast<char>('a' + flat.leaves().size()));
    flat.add({name, {{tensor, at::ones({1000}).set_requires_grad(true)}}});
  }
  const std::int64_t held = 4 * flat.layout().numel;
  EXPECT_EQ(read_memory().total_live_bytes - before, held);
  EXPECT_EQ(read_memory().peak_bytes - before, held + 4 * 1000);
}

}  // namespace
}  // namespace ladder
