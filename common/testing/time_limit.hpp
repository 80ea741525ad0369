// Ends a process that would run forever: a rank that waits for another, or an endless loop.
#pragma once

#include <string>

namespace ladder {

// Unless stop_time_limit() is called within `seconds`, the process writes `message` and the current
// check (current_check.hpp) to stderr and ends with exit code 1, without MPI_Finalize, so that
// mpirun ends the other ranks. One limit at a time. $LADDER_TEST_SECONDS overrides `seconds`.
void start_time_limit(int seconds, const std::string& message);
void stop_time_limit();

}  // namespace ladder
