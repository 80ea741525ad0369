#include "common/model/find_operator.hpp"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

namespace ladder {
namespace {

using Negate = at::Tensor(const at::Tensor&);

TEST(FindOperator, FindsWhatHasThisSignature) {
  const auto negate = find_operator<Negate>("aten::neg", c10::DispatchKey::CPU);
  ASSERT_TRUE(negate.has_value());
  EXPECT_EQ(negate->call(at::ones({})).item<float>(), -1);
}

TEST(FindOperator, FindsNothingElse) {
  using Scale = at::Tensor(const at::Tensor&, const at::Scalar&);
  EXPECT_FALSE(find_operator<Scale>("aten::neg", c10::DispatchKey::CPU)) << "different signature";
  EXPECT_FALSE(find_operator<Negate>("aten::no_such_operator", c10::DispatchKey::CPU));
  EXPECT_FALSE(find_operator<Negate>("aten::neg", c10::DispatchKey::MPS)) << "no kernel there";
}

}  // namespace
}  // namespace ladder
