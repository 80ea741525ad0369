#include "common/train/report/console.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/stop_signal.hpp"

namespace ladder {
namespace {

// Whether a line can be rewritten. mpirun gives its ranks a terminal even if its own output goes to
// a file; ./ladder then sets TERM=dumb.
bool can_rewrite_lines() {
  const char* const term = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) == 1 && (term == nullptr || std::strcmp(term, "dumb") != 0);
}

// The terminal's columns; mpirun's does not say, so ./ladder does.
std::size_t num_columns() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* const columns = std::getenv("COLUMNS");
  return columns != nullptr && std::atoi(columns) > 0 ? std::strtoul(columns, nullptr, 10) : 80;
}

template <class... Values>
std::string print(const char* format, Values... values) {
  char text[128];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

// For files and pipes.
std::string progress_line(const Progress& p) {
  std::string line =
      concat("step ", p.step, "/", p.num_steps, print("   loss %.4f   ", p.record.loss));
  for (const auto& [name, value] : p.record.metrics)
    line += print("%s %.4g   ", name.c_str(), value);
  line += print("grad norm %.3f   lr %.2e   %.0f %s/s", p.record.grad_norm, p.learning_rate,
                p.counted_per_second, p.mean_over.c_str());
  return p.seconds_left ? concat(line, "   ", format_duration(*p.seconds_left), " left") : line;
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
  const std::string line = is_terminal_ ? progress_row(p, num_columns()) : progress_line(p);
  std::printf("%s%s", line.c_str(), is_logged ? "\n" : "");
  std::fflush(stdout);
  has_progress_line_ = !is_logged;
}

std::string format_duration(double seconds) {
  const auto total = std::llround(seconds);
  if (total < 60) return print("%lld s", total);
  if (total < 3600) return print("%lld min %02lld s", total / 60, total % 60);
  return print("%lld h %02lld min", total / 3600, total / 60 % 60);
}

std::string progress_row(const Progress& p, std::size_t num_columns) {
  std::vector<std::string> fields = {concat("step ", p.step, "/", p.num_steps)};
  if (p.seconds_left) {
    const auto left = std::llround(*p.seconds_left);
    fields.push_back(left < 3600 ? print("%lld:%02lld left", left / 60, left % 60)
                                 : print("%lldh%02lld left", left / 3600, left / 60 % 60));
  }
  fields.push_back(print("loss %.3f", p.record.loss));
  fields.push_back(print("norm %.2f", p.record.grad_norm));
  fields.push_back(print("lr %.1e", p.learning_rate));
  const std::string unit = p.mean_over.ends_with("tokens") ? "tok" : p.mean_over;
  fields.push_back(print("%.0f %s/s", p.counted_per_second, unit.c_str()));
  fields.push_back(print("%.3g ms", 1e3 * p.step_seconds));
  for (const auto& [name, value] : p.record.metrics)
    fields.push_back(concat(name, print(" %.4g", value)));
  if (p.peak_bytes > 0) fields.push_back("peak " + format_bytes(p.peak_bytes));
  if (p.flops_per_second > 0) fields.push_back(print("%.3g TFLOP/s", 1e-12 * p.flops_per_second));
  std::string row = fields[0].substr(0, num_columns - 1);
  for (std::size_t i = 1; i < fields.size() && row.size() + 2 + fields[i].size() < num_columns; ++i)
    row += "  " + fields[i];
  return row;
}

}  // namespace ladder
