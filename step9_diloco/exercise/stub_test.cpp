// The stubs, linked instead of the solutions, compile and fail for the right reason.
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/comm/self_communicator.hpp"
#include "common/core/check.hpp"
#include "step9_diloco/diloco.hpp"

namespace ladder {
namespace {

void expect_not_implemented(const std::function<void()>& call, const std::string& what) {
  EXPECT_THAT(call, ::testing::ThrowsMessage<CheckError>("not implemented: step9_diloco: " + what));
}

TEST(Stub, AveragesNothing) {
  SelfCommunicator comm;
  GroupAverager averager(comm);
  expect_not_implemented([&] { averager.start(at::ones({3})); }, "GroupAverager::start()");
  expect_not_implemented([&] { averager.finish(); }, "GroupAverager::finish()");
}

// What is given works.
TEST(Stub, AdoptsTheGlobalParametersAndPlaysNoRound) {
  FlatModel model({{"unit", {{"w", at::ones({3})}}}}), global({{"unit", {{"w", at::ones({3})}}}});
  SelfCommunicator comm;
  GroupAverager averager(comm);
  Diloco diloco(model, global, {}, averager);
  global.params().fill_(2);
  diloco.adopt_global();
  EXPECT_TRUE(model.params().equal(global.params()));
  diloco.settle();
  EXPECT_FALSE(diloco.round().pseudogradient.defined());
  expect_not_implemented([&] { diloco.start_average(); }, "Diloco::start_average()");
  expect_not_implemented([&] { diloco.finish_round(); }, "Diloco::finish_round()");
}

}  // namespace
}  // namespace ladder
