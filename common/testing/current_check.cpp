#include "common/testing/current_check.hpp"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <mutex>

namespace ladder {
namespace {

struct Crash {
  int signal;
  const char* name;
};
constexpr Crash kCrashes[] = {{SIGSEGV, "a segmentation fault"},
                              {SIGBUS, "a bus error"},
                              {SIGFPE, "an integer division by zero"},
                              {SIGILL, "an illegal instruction"},
                              {SIGABRT, "an abort"}};

char current_check[512];
char crash_messages[std::size(kCrashes)][128];
alignas(16) char crash_stack[1 << 16];  // the usual one may have overflowed

extern "C" void on_crash(int signal) {  // async-signal-safe calls only
  for (std::size_t i = 0; i < std::size(kCrashes); ++i) {
    if (kCrashes[i].signal == signal) write_with_current_check(crash_messages[i]);
  }
  raise(signal);  // SA_RESETHAND has removed the handler, so this ends the process
}

// A sanitizer installs its own stack.
void use_crash_stack() {
  stack_t stack = {};
  if (sigaltstack(nullptr, &stack) != 0 || (stack.ss_flags & SS_DISABLE) == 0) return;
  stack.ss_flags = 0;
  stack.ss_sp = crash_stack;
  stack.ss_size = sizeof crash_stack;
  sigaltstack(&stack, nullptr);
}

}  // namespace

void set_current_check(const std::string& name) {
  static std::mutex mutex;  // ranks may be threads, which run the same check
  const std::lock_guard lock(mutex);
  std::snprintf(current_check, sizeof current_check, "%s", name.c_str());
}

void write_with_current_check(const char* message) {
  char line[1024];
  std::size_t length = 0;
  const auto append = [&](const char* text) {
    const std::size_t size = std::min(std::strlen(text), sizeof line - 1 - length);
    std::memcpy(line + length, text, size);
    length += size;
  };
  append(message);
  if (current_check[0] != '\0') {
    append(" in the check '");
    append(current_check);
    append("'");
  }
  line[length++] = '\n';
  if (write(STDERR_FILENO, line, length) < 0) return;  // an error here cannot be reported
}

void name_check_on_crash(const std::string& who) {
  use_crash_stack();
  for (std::size_t i = 0; i < std::size(kCrashes); ++i) {
    std::snprintf(crash_messages[i], sizeof crash_messages[i], "%s: %s", who.c_str(),
                  kCrashes[i].name);
    struct sigaction action = {};
    action.sa_handler = on_crash;
    action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_ONSTACK;
    sigaction(kCrashes[i].signal, &action, nullptr);
  }
}

}  // namespace ladder
