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

double time_scale() {
  const char* const text = std::getenv("LADDER_TIME_SCALE");
  return text != nullptr ? std::max(0.0, std::atof(text)) : 1.0;
}

void start_time_limit(int seconds, const std::string& message) {
  seconds = std::max(1, static_cast<int>(seconds * time_scale()));
  std::snprintf(timeout_message, sizeof timeout_message, "%s takes longer than %d s",
                message.c_str(), seconds);
  std::signal(SIGALRM, on_timeout);
  alarm(static_cast<unsigned>(seconds));
}

void stop_time_limit() {
  alarm(0);
}

}  // namespace ladder
