#include "common/train/stop_signal.hpp"

#include <atomic>
#include <csignal>

namespace ladder {
namespace {

std::atomic<bool> raised = false;  // signal handlers can reach nothing else; ranks may be threads
static_assert(std::atomic<bool>::is_always_lock_free);

extern "C" void on_stop_signal(int number) {
  raised = true;
  if (number == SIGINT) std::signal(SIGINT, SIG_DFL);
}

constexpr int kSignals[] = {SIGUSR1, SIGTERM, SIGHUP, SIGINT};

}  // namespace

StopSignal::StopSignal() {
  std::signal(SIGPIPE, SIG_IGN);  // for good: errors are said after the end
  for (const int number : kSignals) {
    const bool was_ignored = std::signal(number, on_stop_signal) == SIG_IGN;
    if (number == SIGHUP && was_ignored) std::signal(number, SIG_IGN);  // as nohup asks
  }
}

StopSignal::~StopSignal() {
  raised = false;
  for (const int number : kSignals) {
    if (std::signal(number, SIG_DFL) == SIG_IGN) std::signal(number, SIG_IGN);
  }
}

void StopSignal::raise() {
  raised = true;
}

bool StopSignal::was_raised() {
  return raised;
}

}  // namespace ladder
