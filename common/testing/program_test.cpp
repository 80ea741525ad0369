// A program that does not end in time fails its test, whether it is silent or keeps printing.
#include "common/testing/program.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "common/testing/expect_throws.hpp"

namespace ladder {
namespace {

TEST(Program, ReturnsItsExitCode) {
  EXPECT_EQ(Program(words("sh -c 'exit 3'")).wait(60), 3);
  EXPECT_EQ(Program(words("sh -c 'kill -9 $$'")).wait(60), 128 + 9);
}

TEST(Program, MustEndInTime) {
  ::setenv("LADDER_TIME_SCALE", "2", /*overwrite=*/1);
  for (const char* command :
       {"sh -c 'echo started; exec sleep 60'", "sh -c 'while echo started; do :; done'"}) {
    SCOPED_TRACE(command);
    Program program(words(command));
    ASSERT_TRUE(program.wait_for_output("started"));
    expect_throws<CheckError>([&] { program.wait(0.1); },
                              {"is still running after 0.2 s", "started\n"});
  }
}

}  // namespace
}  // namespace ladder
