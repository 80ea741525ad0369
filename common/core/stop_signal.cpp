#include "common/core/stop_signal.hpp"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>

namespace ladder {
namespace {

// Signal handlers can reach nothing else; ranks may be threads.
std::atomic<bool> raised = false, has_handlers = false, is_ending = false;
std::atomic<const char*> words_before_training = nullptr;
static_assert(std::atomic<bool>::is_always_lock_free);
static_assert(std::atomic<const char*>::is_always_lock_free);

extern "C" void on_stop_signal(int number) {
  if (const char* const words = words_before_training) {
    [[maybe_unused]] const auto said = ::write(STDERR_FILENO, words, std::strlen(words));
    std::signal(number, SIG_DFL);
    std::raise(number);  // once this handler has returned
    return;
  }
  raised = true;
  if (number == SIGINT && !is_ending) std::signal(SIGINT, SIG_DFL);
}

constexpr int kSignals[] = {SIGUSR1, SIGTERM, SIGHUP, SIGINT};

}  // namespace

StopSignal::StopSignal(const char* last_words) {
  words_before_training = last_words;
  has_handlers = true;
  std::signal(SIGPIPE, SIG_IGN);  // for good: errors are said after the end
  for (const int number : kSignals) {
    const bool was_ignored = std::signal(number, on_stop_signal) == SIG_IGN;
    if (number == SIGHUP && was_ignored) std::signal(number, SIG_IGN);  // as nohup asks
  }
}

StopSignal::~StopSignal() {
  begin_training();
  raised = has_handlers = false;
  const auto handler = is_ending.exchange(false) ? SIG_IGN : SIG_DFL;
  for (const int number : kSignals) {
    if (std::signal(number, handler) == SIG_IGN) std::signal(number, SIG_IGN);
  }
}

void StopSignal::begin_training() {
  words_before_training = nullptr;
}

void StopSignal::begin_end() {
  if (!has_handlers) return;
  is_ending = true;
  std::signal(SIGINT, on_stop_signal);  // again, if the first has come
}

void StopSignal::raise() {
  raised = true;
}

bool StopSignal::was_raised() {
  return raised;
}

}  // namespace ladder
