#include "common/train/stop_signal.hpp"

#include <csignal>

namespace ladder {
namespace {

volatile std::sig_atomic_t raised = 0;  // signal handlers can reach nothing else

extern "C" void on_stop_signal(int number) {
  raised = 1;
  if (number == SIGINT) std::signal(SIGINT, SIG_DFL);
}

}  // namespace

StopSignal::StopSignal() {
  for (const int number : {SIGUSR1, SIGTERM, SIGINT}) std::signal(number, on_stop_signal);
}

StopSignal::~StopSignal() {
  raised = 0;
  for (const int number : {SIGUSR1, SIGTERM, SIGINT}) std::signal(number, SIG_DFL);
}

bool StopSignal::was_raised() {
  return raised != 0;
}

}  // namespace ladder
