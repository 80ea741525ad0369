#include "common/train/checkpoint/joined.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ladder {
namespace {

using ::testing::ElementsAre;

// 11 parts of a tensor seen as [outer, 11, inner], whose names do not sort as their numbers do.
struct CutTensor {
  CutTensor(std::vector<std::int64_t> shape, std::int64_t outer, std::int64_t inner)
      : whole(at::arange(outer * 11 * inner).to(at::kFloat).view(shape)) {
    for (int index = 0; index < 11; ++index) {
      const std::string name = "w#" + std::to_string(index);
      parts[name] = {"w", shape, outer, 11, inner, index, index + 1, index};
      const at::Tensor own = whole.view({outer, 11, inner}).slice(1, index, index + 1).clone();
      tensors.push_back({name, own});
      tensors.push_back({name + ".exp_avg", own * 2});
    }
  }
  at::Tensor whole;
  std::map<std::string, TensorPart> parts;
  std::vector<NamedTensor> tensors = {{"a", at::zeros({2})}, {"z", at::zeros({3})}};
};

std::vector<std::string> names_of(const StateTensors& state) {
  std::vector<std::string> names;
  state.for_each([&](const std::string& name, const at::Tensor&) { names.push_back(name); });
  return names;
}

TEST(Joined, GivesWholesInTheOrderOfTheirNames) {
  for (const CutTensor& in :
       {CutTensor({33}, 3, 1), CutTensor({11, 4}, 1, 4), CutTensor({5, 22}, 10, 1)}) {
    const StateTensors state = joined(whole_tensors(in.tensors), in.parts);
    std::vector<std::string> stored;
    for (const StoredTensor& tensor : state.stored) stored.push_back(tensor.name);
    EXPECT_THAT(stored, ElementsAre("a", "w", "w.exp_avg", "z"));
    EXPECT_EQ(names_of(state), stored);
    state.for_each([&](const std::string& name, const at::Tensor& values) {
      if (name == "w") {
        EXPECT_TRUE(values.equal(in.whole));
      }
      if (name == "w.exp_avg") {
        EXPECT_TRUE(values.equal(in.whole * 2));
      }
    });
    EXPECT_EQ(tensor_hash(joined(whole_tensors({in.tensors[2], in.tensors[4]}), {})),
              tensor_hash(whole_tensors({in.tensors[2], in.tensors[4]})));
  }
}

TEST(Joined, ReadsWholesIntoParts) {
  for (CutTensor in :
       {CutTensor({33}, 3, 1), CutTensor({11, 4}, 1, 4), CutTensor({5, 22}, 10, 1)}) {
    std::vector<NamedTensor> empty;
    for (const auto& [name, tensor] : in.tensors) empty.push_back({name, at::zeros_like(tensor)});
    const StateTensors state = joined(whole_tensors(empty), in.parts);
    fill_all(state, [&](const std::string& name, const at::Tensor& values) {
      at::Tensor(values).copy_(name == "w"           ? in.whole
                               : name == "w.exp_avg" ? in.whole * 2
                                                     : at::zeros({1}));
    });
    for (std::size_t i = 0; i < empty.size(); ++i)
      EXPECT_TRUE(empty[i].tensor.equal(in.tensors[i].tensor)) << empty[i].name;
  }
}

}  // namespace
}  // namespace ladder
