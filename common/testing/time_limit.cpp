#include "common/testing/time_limit.hpp"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "common/testing/current_check.hpp"

namespace ladder {
namespace {

char timeout_message[512];

extern "C" void on_timeout(int /*signal*/) {  // async-signal-safe calls only
  write_with_current_check(timeout_message);
  _exit(1);
}

}  // namespace

void start_time_limit(int seconds, const std::string& message) {
  const char* const text = std::getenv("LADDER_TEST_SECONDS");
  if (text != nullptr) seconds = std::max(1, std::atoi(text));
  std::snprintf(timeout_message, sizeof timeout_message, "%s takes longer than %d s",
                message.c_str(), seconds);
  std::signal(SIGALRM, on_timeout);
  alarm(static_cast<unsigned>(seconds));
}

void stop_time_limit() {
  alarm(0);
}

}  // namespace ladder
