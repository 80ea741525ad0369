// A process that dies in a check names the check.
#include "common/testing/current_check.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "common/testing/time_limit.hpp"

namespace ladder {
namespace {

using ::testing::ExitedWithCode;
using ::testing::KilledBySignal;

void start_check() {
  const rlimit no_core_file = {};
  setrlimit(RLIMIT_CORE, &no_core_file);
  name_check_on_crash("rank 3");
  set_current_check("two steps");
}

// Never ends; the compiler must not turn it into a loop.
int recurse(volatile int* depth) {  // NOLINT(misc-no-recursion)
  volatile char frame[4096] = {};
  *depth = *depth + 1;
  return *depth < 0 ? frame[0] : recurse(depth) + frame[0];
}

// A process that starts a check, renames it, and crashes.
void crash_in(const char* check, int signal) {
  start_check();
  set_current_check(check);
  std::raise(signal);
}

TEST(CurrentCheck, IsNamedByACrash) {
  EXPECT_EXIT(crash_in("two steps", SIGSEGV), KilledBySignal(SIGSEGV),
              "^rank 3: a segmentation fault in the check 'two steps'\n$");
  EXPECT_EXIT(crash_in("two steps", SIGABRT), KilledBySignal(SIGABRT),
              "^rank 3: an abort in the check 'two steps'\n$");
  EXPECT_EXIT(crash_in("", SIGABRT), KilledBySignal(SIGABRT), "^rank 3: an abort\n$");  // over
  const std::string long_name(5000, 'x');
  EXPECT_EXIT(crash_in(long_name.c_str(), SIGABRT), KilledBySignal(SIGABRT),
              "in the check 'x*'\n$");
}

TEST(CurrentCheck, IsNamedByAnOverflowOfTheStack) {
#ifdef LADDER_SANITIZE_ADDRESS
  GTEST_SKIP() << "here the sanitizer answers for the stack";
#endif
  const auto crash = [] {
    start_check();
    int depth = 0;
    std::_Exit(recurse(&depth));
  };
  EXPECT_EXIT(crash(), KilledBySignal(SIGSEGV), "a segmentation fault in the check 'two steps'");
}

TEST(CurrentCheck, IsNamedByTheTimeLimit) {
  const auto hang = [] {
    setenv("LADDER_TIME_SCALE", "0.01", /*overwrite=*/1);
    start_time_limit(60, "rank 3: the judge");
    start_check();
    while (true) pause();
  };
  EXPECT_EXIT(hang(), ExitedWithCode(1),
              "^rank 3: the judge takes longer than 1 s in the check 'two steps'\n$");
}

}  // namespace
}  // namespace ladder
