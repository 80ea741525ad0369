#include "common/core/check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ladder {
namespace {

using ::testing::StrEq;
using ::testing::ThrowsMessage;

TEST(Check, NamesTheValues) {
  EXPECT_NO_THROW(check(true, "never written"));
  EXPECT_THAT([] { check(false, "--steps is ", -3, ", it must be at least ", 0); },
              ThrowsMessage<CheckError>(StrEq("--steps is -3, it must be at least 0")));
}

TEST(Check, CallsAFunctionForItsPartOfTheMessageOnFailureOnly) {
  int num_calls = 0;
  const auto costly = [&] { return concat("call ", ++num_calls); };
  check(true, costly);
  check_usage(true, costly);
  EXPECT_EQ(num_calls, 0);
  EXPECT_THAT([&] { check(false, "this is ", costly); },
              ThrowsMessage<CheckError>(StrEq("this is call 1")));
}

TEST(Check, UsageIsAnErrorOfItsOwn) {
  EXPECT_THROW(check_usage(false, "no such option"), UsageError);
  EXPECT_NO_THROW(check_usage(true, "never written"));
}

}  // namespace
}  // namespace ladder
