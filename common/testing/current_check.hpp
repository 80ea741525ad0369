// The check that is running, for whoever finds the process dead: an answer may end in a segmentation
// fault, an abort or an endless loop, and then no exception says where.
//
// One check at a time. Global, because a signal handler can reach nothing else.
#pragma once

#include <string>

namespace ladder {

// Call it before the check begins. "" means that none is running.
void set_current_check(const std::string& name);

// Writes "MESSAGE in the check 'NAME'" to stderr as one line, without the check if none is running.
// Safe in a signal handler.
void write_with_current_check(const char* message);

// From now on a signal that ends the process by its own fault (SIGSEGV, SIGBUS, SIGFPE, SIGILL,
// SIGABRT) first writes a line such as "rank 1: a segmentation fault in the check 'NAME'", also when
// the stack has overflowed. Then the process ends as it would have. `who` is "rank 1".
void name_check_on_crash(const std::string& who);

}  // namespace ladder
