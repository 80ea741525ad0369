// For tests: what must be refused, and what is said then.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <source_location>
#include <string>
#include <vector>

#include "common/core/check.hpp"

namespace ladder {

// Expects `act` to throw an Error whose message has all these parts. A failure names the caller's
// line.
template <class Error, class Act>
void expect_throws(const Act& act, const std::vector<std::string>& parts,
                   const std::source_location& where = std::source_location::current()) {
  const ::testing::ScopedTrace trace(where.file_name(), static_cast<int>(where.line()), "");
  std::vector<::testing::Matcher<std::string>> wanted;
  for (const std::string& part : parts) wanted.emplace_back(::testing::HasSubstr(part));
  EXPECT_THAT(act, ::testing::ThrowsMessage<Error>(::testing::AllOfArray(wanted)));
}

}  // namespace ladder
