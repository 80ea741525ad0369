#include "common/train/report/console.hpp"

#include <poll.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "common/core/check.hpp"
#include "common/train/stop_signal.hpp"

namespace ladder {
namespace {

// Whether a line can be rewritten. mpirun gives its ranks a terminal even if its own output goes to
// a file; ./ladder then sets TERM=dumb.
bool can_rewrite_lines() {
  const char* const term = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) == 1 && (term == nullptr || std::strcmp(term, "dumb") != 0);
}

// Waits for a reader that is slow, or a terminal that Ctrl-S holds, but not once this run is to
// stop.
bool is_read() {
  constexpr int kLookEveryMs = 100;
  pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  while (::poll(&output, 1, kLookEveryMs) <= 0) {
    if (StopSignal::was_raised()) return false;
  }
  return true;
}

}  // namespace

Console::Console(bool is_enabled) : is_enabled_(is_enabled), is_terminal_(can_rewrite_lines()) {}

Console::~Console() {
  if (has_progress_line_ && is_read()) std::printf("\n");
  std::fflush(stdout);
}

void Console::clear_progress() {
  if (has_progress_line_) std::printf("\r\033[K");
  has_progress_line_ = false;
}

void Console::line(const std::string& text) {
  if (!is_enabled_ || !is_read()) return;
  clear_progress();
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

void Console::progress(const Progress& p, bool is_logged) {
  if (!is_enabled_ || (!is_logged && !is_terminal_) || !is_read()) return;
  clear_progress();
  std::printf("step %lld/%lld   loss %.4f   ", static_cast<long long>(p.step),
              static_cast<long long>(p.num_steps), p.loss);
  for (const auto& [name, value] : p.metrics) std::printf("%s %.4g   ", name.c_str(), value);
  std::printf("grad norm %.3f   lr %.2e   %.0f %s/s   %s left%s", p.grad_norm, p.learning_rate,
              p.counted_per_second, p.mean_over.c_str(), format_duration(p.seconds_left).c_str(),
              is_logged ? "\n" : "");
  std::fflush(stdout);
  has_progress_line_ = !is_logged;
}

std::string format_duration(double seconds) {
  const auto total = static_cast<long long>(std::llround(seconds));
  char text[64];
  if (total < 60) {
    std::snprintf(text, sizeof text, "%lld s", total);
  } else if (total < 3600) {
    std::snprintf(text, sizeof text, "%lld min %02lld s", total / 60, total % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld h %02lld min", total / 3600, total / 60 % 60);
  }
  return text;
}

}  // namespace ladder
