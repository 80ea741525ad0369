// Records which check is running, to be named if the process dies: an answer may end in a
// segmentation fault, an abort or an endless loop, and then no exception says where.
//
// One check at a time. Global, because a signal handler can only access globals.
#pragma once

#include <string>

namespace ladder {

// Call this before the check begins. "" means that no check is running.
void set_current_check(const std::string& name);

// Writes "MESSAGE in the check 'NAME'" as one line to stderr, or only the message if no check is
// running. Safe in a signal handler.
void write_with_current_check(const char* message);

// From now on, if the process crashes (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT), it first writes a
// line such as "rank 1: a segmentation fault in the check 'NAME'", even after a stack overflow, and
// then ends as it would have without this. `who` is "rank 1".
void name_check_on_crash(const std::string& who);

}  // namespace ladder
